#!/usr/bin/env python
"""Compute the seeds needed: `python tools/sample_size.py --std 0.6 --difference 0.4`; also `mmlape sample-size`."""

import sys

from mmlape.cli import main

if __name__ == '__main__':
    sys.exit(main(['sample-size', *sys.argv[1:]]))
