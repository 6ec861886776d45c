"""Hybrid Task Cascade."""
