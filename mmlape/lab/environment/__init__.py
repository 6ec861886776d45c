"""The installed stack: versions, checks, the lines that install it."""
