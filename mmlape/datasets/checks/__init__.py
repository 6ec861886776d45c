"""Checks of datasets before training."""
