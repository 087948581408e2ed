"""What the documentation restates of the code, as Markdown."""
