"""The special functions on a GPU, all inputs: the model's datapath as a kernel beside the instruction itself."""
