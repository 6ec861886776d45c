"""Vision Transformer, DeiT."""
