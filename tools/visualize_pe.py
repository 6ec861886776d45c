#!/usr/bin/env python
"""Draws what layers see of the PE: `tools/visualize_pe.py CONFIG|CHECKPOINT --out DIR`; also `mmlape visualize-pe`."""

import sys

from mmlape.cli import main

if __name__ == '__main__':
    sys.exit(main(['visualize-pe', *sys.argv[1:]]))
