#!/usr/bin/env python
"""Write the mini data: `python tools/make_mini_data.py DIR`; the same as `mmlape make-mini-data`."""

import sys

from mmlape.cli import main

if __name__ == '__main__':
    sys.exit(main(['make-mini-data', *sys.argv[1:]]))
