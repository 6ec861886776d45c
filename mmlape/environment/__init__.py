"""The installed stack: versions, checks, pins."""
