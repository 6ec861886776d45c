#!/usr/bin/env python
"""Show why a ViT needs a PE: `tools/explain_pe.py [IMAGE|CONFIG] --out DIR`; also `mmlape explain-pe`."""

import sys

from mmlape.cli import main

if __name__ == '__main__':
    sys.exit(main(['explain-pe', *sys.argv[1:]]))
