"""What a kernel may do wrong: a row for each rule, and hazards in the forms that tools read."""
