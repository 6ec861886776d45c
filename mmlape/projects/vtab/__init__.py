"""VTAB-1k (arXiv 1910.04867): fine-tuning on nineteen sets by the protocol of its paper."""
