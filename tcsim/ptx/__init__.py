"""PTX kernels: read, and run on a CPU with the hardware's bits."""
