"""cp.async and cp.async.bulk."""
