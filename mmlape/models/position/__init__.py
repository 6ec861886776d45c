"""Position encodings and their joining."""
