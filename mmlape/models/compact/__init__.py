"""Compact Transformers: ViT-Lite, CVT, CCT."""
