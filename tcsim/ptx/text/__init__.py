"""What PTX says: its text, read into its syntax."""
