"""DETR."""
