"""Number formats, codes and values, rounding, conversion, IEEE arithmetic on codes."""
