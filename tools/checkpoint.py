#!/usr/bin/env python
"""Inspects, converts, publishes or averages checkpoints: `python tools/checkpoint.py ACTION`."""

import sys

from mmlape.cli import main

if __name__ == '__main__':
    sys.exit(main(['checkpoint', *sys.argv[1:]]))
