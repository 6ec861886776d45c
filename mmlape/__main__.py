"""`python -m mmlape` is the command `mmlape`."""

import sys

from mmlape.cli import main

sys.exit(main())
