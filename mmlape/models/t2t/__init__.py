"""T2T-ViT."""
