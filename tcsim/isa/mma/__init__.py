"""mma.sync and mma.sp, dense, sparse and block-scaled."""
