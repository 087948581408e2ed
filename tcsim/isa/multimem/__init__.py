"""multimem: one address that means the memory of several devices."""
