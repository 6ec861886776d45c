#!/usr/bin/env python
"""Few-shot accuracy: `tools/few_shot.py CONFIG CHECKPOINT --shots 25`; also `mmlape few-shot`."""

import sys

from mmlape.cli import main

if __name__ == '__main__':
    sys.exit(main(['few-shot', *sys.argv[1:]]))
