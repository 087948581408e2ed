"""cvt and cvt.pack: from one number format to another, with roundings, scale factors and random bits."""
