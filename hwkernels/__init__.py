"""The real instructions: PTX written, assembled, and launched on a GPU."""
