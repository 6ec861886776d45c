#!/usr/bin/env python
"""Plot gradient norms by depth: `tools/plot_grad_norms.py WORK_DIR --out FILE`; also `mmlape plot-grad-norms`."""

import sys

from mmlape.cli import main

if __name__ == '__main__':
    sys.exit(main(['plot-grad-norms', *sys.argv[1:]]))
