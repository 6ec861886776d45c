#!/usr/bin/env python
"""Train over seeds and average: `python tools/multi_seed.py CONFIG --seeds 121 122`; also `mmlape multi-seed`."""

import sys

from mmlape.cli import main

if __name__ == '__main__':
    sys.exit(main(['multi-seed', *sys.argv[1:]]))
