#!/usr/bin/env python
"""Print the parameter groups: `python tools/print_params.py CONFIG`; the same as `mmlape print-params`."""

import sys

from mmlape.cli import main

if __name__ == '__main__':
    sys.exit(main(['print-params', *sys.argv[1:]]))
