"""A launch that can be stopped, looked at, and asked where a byte comes from."""
