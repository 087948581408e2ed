"""Programs that launch kernels as users do, through each launcher that `hwkernels.capture` hooks; recorded and replayed on a GPU host."""
