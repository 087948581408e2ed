"""Campaigns: very many outputs of an instruction on a GPU, compared there with the engine, in a ledger that a CPU can check in part."""
