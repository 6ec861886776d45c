#!/usr/bin/env python
"""Draw a prediction: `python tools/image_demo.py IMAGE CONFIG CHECKPOINT --out FILE`; also `mmlape image-demo`."""

import sys

from mmlape.cli import main

if __name__ == '__main__':
    sys.exit(main(['image-demo', *sys.argv[1:]]))
