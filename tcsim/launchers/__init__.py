"""How a kernel is started without writing Python: a launch file, or a launch that was recorded on a GPU."""
