#!/usr/bin/env python
"""Average and compare arms: `python tools/report.py WORK_DIR --baseline ARM`; also `mmlape report`."""

import sys

from mmlape.cli import main

if __name__ == '__main__':
    sys.exit(main(['report', *sys.argv[1:]]))
