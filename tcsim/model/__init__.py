"""The types of the specification: rows, forms, effects, families, instructions."""
