#!/usr/bin/env python
"""Draw the PE of each layer: `tools/visualize_pe.py CONFIG|CHECKPOINT --out DIR`; also `mmlape visualize-pe`."""

import sys

from mmlape.cli import main

if __name__ == '__main__':
    sys.exit(main(['visualize-pe', *sys.argv[1:]]))
