"""Triton's tutorials on the model: read from a folder with smaller sizes (none of them is here), and the same launches on a GPU."""
