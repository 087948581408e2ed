"""The rules of `tcsim.ptx.counters` beside Nsight Compute's counters: launches of one instruction each, live or recorded."""
