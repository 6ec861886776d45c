#!/usr/bin/env python
"""Show the runs below a work dir: `python tools/status.py work_dirs --watch`; also `mmlape status`."""

import sys

from mmlape.cli import main

if __name__ == '__main__':
    sys.exit(main(['status', *sys.argv[1:]]))
