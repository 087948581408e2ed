"""A batch of blocks as it runs: registers, memory, warps, barriers, effects, work in flight, clusters."""
