"""Record which kernels and splits of K torch's products take on a GPU, for `tcsim.plan`."""
