"""Find tensor cores that compute wrong: every multiprocessor of a GPU runs every tensor instruction on operands whose results are known to the bit."""
