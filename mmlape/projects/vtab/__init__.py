"""VTAB-1k (arXiv 1910.04867): fine-tuning on nineteen sets by the protocol of its paper."""

COMMANDS = {'vtab': 'fine-tune a pretrained model on the sets of VTAB-1k, and average'}
