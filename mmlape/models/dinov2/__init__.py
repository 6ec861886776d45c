"""The heads of DINOv2's and DINOv3's segmentors."""
