#!/usr/bin/env python
"""Shows how the runs below a work dir are: `python tools/status.py work_dirs --watch`; also `mmlape status`."""

import sys

from mmlape.cli import main

if __name__ == '__main__':
    sys.exit(main(['status', *sys.argv[1:]]))
