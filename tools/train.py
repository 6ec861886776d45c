#!/usr/bin/env python
"""Train a config: `python tools/train.py CONFIG`; the same as `mmlape train`."""

import sys

from mmlape.cli import main

if __name__ == '__main__':
    sys.exit(main(['train', *sys.argv[1:]]))
