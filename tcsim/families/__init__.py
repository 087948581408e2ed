"""One module per instruction family: its rows, its layouts, its lowerings, its evidence."""
