"""Swin Transformer."""
