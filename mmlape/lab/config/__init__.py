"""Configs: found, changed, checked, and read once into a recipe."""
