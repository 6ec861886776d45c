#!/usr/bin/env python
"""Evaluate a checkpoint: `python tools/test.py CONFIG CHECKPOINT`; the same as `mmlape test`."""

import sys

from mmlape.cli import main

if __name__ == '__main__':
    sys.exit(main(['test', *sys.argv[1:]]))
