"""LiT: a text tower that learns to agree with a frozen image tower."""
