"""Trained models at several sizes of the test images."""
