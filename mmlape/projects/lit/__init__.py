"""LiT (CVPR 2022): a text tower that learns to agree with a frozen image tower, with captions and retrieval."""
