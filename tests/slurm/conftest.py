"""These tests need a Slurm controller, which tests/slurm/run.sh starts; without it they are not collected."""

import os

collect_ignore = [] if os.environ.get('MMLAPE_SLURM') else ['test_slurm.py']
