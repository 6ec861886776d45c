"""Export of backbones."""
