"""PTX to Python: what a kernel becomes before it runs."""
