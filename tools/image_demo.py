#!/usr/bin/env python
"""Draws a prediction: `python tools/image_demo.py IMAGE CONFIG CHECKPOINT --out PICTURE`; also `mmlape image-demo`."""

import sys

from mmlape.cli import main

if __name__ == '__main__':
    sys.exit(main(['image-demo', *sys.argv[1:]]))
