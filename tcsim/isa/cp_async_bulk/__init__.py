"""cp.async.bulk and cp.reduce.async.bulk: copies and reductions of whole ranges of memory."""
