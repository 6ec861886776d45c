"""Export to other formats, held to PyTorch's numbers."""
