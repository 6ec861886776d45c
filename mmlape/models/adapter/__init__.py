"""ViT-Adapter."""
