"""T2T-ViT (ICCV 2021)."""

BACKBONES = {'T2TViT': 'model'}
