#!/usr/bin/env python
"""Check every file and annotation of the data: `python tools/check_data.py CONFIG`; also `mmlape check-data`."""

import sys

from mmlape.cli import main

if __name__ == '__main__':
    sys.exit(main(['check-data', *sys.argv[1:]]))
