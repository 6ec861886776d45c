"""CeiT (ICCV 2021)."""

BACKBONES = {'CeiT': 'model'}
