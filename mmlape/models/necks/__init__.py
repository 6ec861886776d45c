"""Necks of the public ViT-Adapter code that mmdetection does not have."""
