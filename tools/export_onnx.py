#!/usr/bin/env python
"""Export a backbone: `python tools/export_onnx.py CONFIG CHECKPOINT --size H W --out FILE`; `mmlape export-onnx`."""

import sys

from mmlape.cli import main

if __name__ == '__main__':
    sys.exit(main(['export-onnx', *sys.argv[1:]]))
