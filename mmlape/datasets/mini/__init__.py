"""The mini data."""
