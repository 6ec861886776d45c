#!/usr/bin/env python
"""Inspect, convert, publish or average checkpoints: `python tools/checkpoint.py ACTION`."""

import sys

from mmlape.cli import main

if __name__ == '__main__':
    sys.exit(main(['checkpoint', *sys.argv[1:]]))
