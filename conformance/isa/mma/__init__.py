"""mma.sync and mma.sp."""
