"""torch.nn.functional.scaled_dot_product_attention on NumPy arrays: its backends as they run on an H200, and which one torch takes."""
