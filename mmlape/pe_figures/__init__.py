"""Figures of position encodings."""
