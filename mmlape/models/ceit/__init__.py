"""CeiT."""
