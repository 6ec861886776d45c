"""Messages where a run logs them.

MMEngine's current logger if that is imported, else Python's logger 'mmlape'.
"""

import logging
import sys


def log(message: str, level: int = logging.INFO) -> None:
    """Log a message. Without MMEngine, Python shows warnings by default, and what `logging` is configured to."""
    mmengine = sys.modules.get('mmengine.logging')
    if mmengine is None:
        logging.getLogger('mmlape').log(level, message)
    else:
        mmengine.print_log(message, logger='current', level=level)
