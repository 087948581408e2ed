"""The rules by subject: what happens is judged where it happens, and each finding has a row in `tcsim.ptx.hazards.rules`."""
