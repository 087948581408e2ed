"""What can be asked of instructions, descriptors and numbers, answered as plain data: for the command line and for you.

Nothing here prints. Functions return dataclasses whose `as_dict()` is what `tcsim ... --json` writes; `Report` and its
renderers (text, Markdown, CSV, SVG) turn them into something to read.
"""
