"""Layers that backbones are made of, one concept a file."""
