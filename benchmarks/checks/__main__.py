"""A child of `benchmarks.gpu_check`: runs the checks of a section that are left, and reports each as a line of JSON.

python -m benchmarks.checks SECTION OPTIONS FINISHED
"""

import gc
import json
import os
import sys
import time
import traceback
import warnings

from benchmarks.checks import FAIL, Options, checks, line_of, not_installed, reason
from benchmarks.checks.stand_ins import lend_stand_ins


def main() -> None:
    """Report {'names': ...} first, then {'start': name} and {'line': ...} for each check."""
    report = os.fdopen(os.dup(1), 'w', buffering=1)
    os.dup2(2, 1)  # what libraries print is no report
    warnings.filterwarnings('ignore')
    section, options, finished = sys.argv[1], Options(**json.loads(sys.argv[2])), json.loads(sys.argv[3])
    if options.site:
        lend_stand_ins()
    try:
        listed = [check for check in checks(section, options) if check.name not in finished]
    except ModuleNotFoundError as error:
        _send(report, nothing=not_installed(section, error))
        return
    except Exception as error:
        traceback.print_exc()
        _send(report, nothing=dict(name=section, status=FAIL, figure=reason(error)))
        return
    _send(report, names=[check.name for check in listed])
    for check in listed:
        _send(report, start=check.name)
        started = time.perf_counter()
        line = line_of(check)
        line['seconds'] = round(time.perf_counter() - started, 2)
        lost = not _free(options.device)
        _send(report, line=line)
        if lost:
            return


def _send(report, **message) -> None:
    report.write(json.dumps(message) + '\n')


def _free(device: str) -> bool:
    """Release the memory of a check; return whether the device still answers, which it does not after some errors."""
    gc.collect()
    if device == 'cuda':
        import torch

        try:
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
        except RuntimeError:
            return False
    return True


if __name__ == '__main__':
    main()
