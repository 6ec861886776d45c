"""Compact Transformers (arXiv 2104.05704): ViT-Lite, CVT, CCT."""
