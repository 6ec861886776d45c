"""VTAB-1k: a pretrained model fine-tuned on 19 small sets (arXiv:1910.04867), as the Dual PatchNorm paper does it."""
