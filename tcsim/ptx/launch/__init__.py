"""A launch: its shape and parameters, its grid, the processes that run it."""
