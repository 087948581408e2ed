"""Which elements the operands of a product are, by where each came from, and whether another way to read them would make them a matrix."""
