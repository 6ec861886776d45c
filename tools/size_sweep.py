#!/usr/bin/env python
"""Test at several sizes: `tools/size_sweep.py CONFIG CHECKPOINT --sizes S ... --out DIR`; also `mmlape size-sweep`."""

import sys

from mmlape.cli import main

if __name__ == '__main__':
    sys.exit(main(['size-sweep', *sys.argv[1:]]))
