#!/usr/bin/env python
"""See `mmlape doctor --help`."""

import sys

from mmlape.cli import main

if __name__ == '__main__':
    sys.exit(main(['doctor', *sys.argv[1:]]))
