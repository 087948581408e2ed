"""cp.async.bulk and cp.reduce.async.bulk."""
