#!/usr/bin/env python
"""Fine-tune on VTAB-1k: `python tools/vtab.py CONFIG... CHECKPOINT --data DIR`; also `mmlape vtab`."""

import sys

from mmlape.cli import main

if __name__ == '__main__':
    sys.exit(main(['vtab', *sys.argv[1:]]))
