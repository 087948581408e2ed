"""Matrix and instruction descriptors: their bits, what they may say, which bytes they read."""
