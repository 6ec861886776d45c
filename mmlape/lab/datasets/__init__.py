"""Datasets: checks before training, loading transforms that name a broken file, and the mini data."""
