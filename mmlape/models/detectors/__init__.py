"""Detectors; each is imported on first use, since it needs MMDetection."""
