"""Hardware counters of a launch, by rules: what Nsight Compute would count of its accesses, copies and matrix products."""
