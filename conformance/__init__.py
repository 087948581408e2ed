"""Hardware against model, bit for bit: live on a GPU, or replaying recorded hardware results."""
