"""The fix for a failed step, found by what its log contains."""

import re
from pathlib import Path

_KNOWN = (
    (
        r'No space left on device|Errno 28',
        'The disk is full: set-up needs about 8 GB below the project, and pip 3 GB below ~/.cache and $TMPDIR.',
    ),
    (
        r'NameResolutionError|Temporary failure in name resolution|NewConnectionError|Network is unreachable'
        r'|ConnectTimeout|ReadTimeout|Max retries exceeded|ProxyError|SSLError|CERTIFICATE_VERIFY_FAILED',
        'The package index could not be reached: check the network (and https_proxy or pip.conf), then call it again.',
    ),
    (r'Python\.h: No such file', "Python's headers are missing: apt-get install -y python3-dev"),
    (
        r"(g|c)\+\+: (command )?not found|No such file or directory: '\S*(g|c)\+\+'"
        r"|'\S*(gcc|(g|c)\+\+)' failed: No such file|unable to execute",
        'The C++ compiler is missing or does not run: apt-get install -y g++',
    ),
    (
        r'Killed signal terminated program|internal compiler error: Killed|virtual memory exhausted|Out of memory',
        'The compiler ran out of memory (it takes about 1.5 GB a job): call it again with MAX_JOBS=1.',
    ),
    (
        r'nvcc fatal|CUDA_HOME|The detected CUDA version .* mismatches',
        'The CUDA compiler does not fit torch; to compile the CPU ops only: CUDA_VISIBLE_DEVICES= make setup',
    ),
    (
        r'No matching distribution found|ResolutionImpossible|Could not find a version',
        'The package index lacks a pinned version for this Python (see mmlape/requirements.txt). Python 3.12 is the '
        'one to use: make setup PYTHON=/path/to/python3.12',
    ),
    (
        r'ensurepip is not available|No module named ensurepip|No module named venv',
        "Python's venv module is missing: apt-get install -y python3-venv",
    ),
    (r'externally-managed-environment', 'pip refused to touch the system Python: remove .venv and call it again.'),
)


def tail(log: Path, lines: int = 15) -> list[str]:
    """Return the last lines of a log, cut to a readable width; compiler commands run to thousands of characters."""
    if not log.exists():
        return []
    text = log.read_text(encoding='utf-8', errors='replace').rstrip().splitlines()
    return [line[:200] for line in text[-lines:]]


def error_lines(log: Path, lines: int = 5) -> list[str]:
    """Return the first lines of a log that name an error, which the tail may have lost."""
    if not log.exists():
        return []
    text = log.read_text(encoding='utf-8', errors='replace').splitlines()
    return [line.strip()[:200] for line in text if re.search(r'\b(fatal error|error):', line, re.I)][:lines]


def advise(log: Path) -> str:
    """Return the fix for the failure that a log shows."""
    text = log.read_text(encoding='utf-8', errors='replace') if log.exists() else ''
    for pattern, advice in _KNOWN:
        if re.search(pattern, text):
            return advice
    return 'Read the log; when the cause is fixed, call it again: finished steps are skipped.'
