"""Conversions on a GPU, all inputs: the model's arithmetic as a kernel beside the instruction itself."""
