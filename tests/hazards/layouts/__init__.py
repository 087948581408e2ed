"""Mistakes of layout, planted in kernels that are right without them: which of them the check names, and with what mend."""
