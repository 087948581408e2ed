"""Find what each tensor-core instruction of a GPU computes from its answers alone, beside what the registry says."""
