"""Hardware bits against model bits, and what to print when they differ."""
