"""timm's ViTs, DINOv2 and DINOv3 among them."""
