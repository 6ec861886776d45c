#!/usr/bin/env python
"""Check the installation: `python tools/doctor.py`; the same as `mmlape doctor`."""

import sys

from mmlape.cli import main

if __name__ == '__main__':
    sys.exit(main(['doctor', *sys.argv[1:]]))
