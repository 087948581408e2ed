"""The mutation matrix: kernels that are right with each fence, commit, wait, arrival and barrier deleted, moved or changed, and what a run says of each."""
