"""The failure of a run that could not record it: from exit status and log."""

import json

import pytest

from mmlape.files import write_json
from mmlape.lab.runs.diagnosis import diagnose, last_part, log_tail, record_diagnosis
from mmlape.lab.runs.run import read_run
from mmlape.lab.runs.schema import Failure, RunRecord

CASES = [
    (-9, [], False, 'interrupted', 'killed by SIGKILL'),
    (137, ['Iter(train) [1/6]'], False, 'interrupted', 'killed by SIGKILL'),
    (-9, [], True, 'out-of-memory', 'killed by the kernel: this machine ran out of memory'),
    (-15, [], False, 'interrupted', 'killed by SIGTERM'),
    (-11, [], False, 'error', 'killed by SIGSEGV'),
    (
        137,
        [
            'mmlape: interrupted in iteration 1: continue with --resume',
            'mmlape: process 3 failed first, with exit status -9',
        ],
        False,
        'lost-worker',
        'process 3 was killed by SIGKILL',
    ),
    (1, ['mmlape: error: cannot write into x'], False, 'error', 'cannot write into x'),
    (1, ['mmlape: error: first', 'mmlape: error: last'], False, 'error', 'last'),
    (1, ['mmlape: error: load_from=a: there is no such file'], False, 'missing-checkpoint', 'load_from=a'),
    (1, ['OSError: [Errno 28] No space left on device'], False, 'disk-full', 'exit status 1: OSError: [Errno 28]'),
    (1, ['torch.OutOfMemoryError: CUDA out of memory.', ' in f'], False, 'out-of-memory', 'exit status 1: torch.Out'),
    (
        1,
        ['RuntimeError: DataLoader worker (pid 5) is killed by signal: Killed.'],
        False,
        'lost-worker',
        'exit status 1',
    ),
    (1, ['RuntimeError: DataLoader worker (pid 5) is killed by signal'], True, 'out-of-memory', 'the kernel killed a'),
    (255, ['srun: error: no node'], False, 'error', 'exit status 255: srun: error: no node'),
    (2, ['nothing known'], False, 'error', 'exit status 2: nothing known'),
    (None, [], False, 'error', 'ended without a message'),
]


@pytest.mark.parametrize(('status', 'lines', 'starved', 'kind', 'reason'), CASES)
def test_exit_status_and_log_tell_kind_and_reason(status, lines, starved, kind, reason):
    found = diagnose(status, lines, starved)
    assert found.kind == kind and found.reason.startswith(reason)


def test_only_the_last_attempt_counts(tmp_path):
    log = tmp_path / 'seed_1.log'
    log.write_text('$ first\nOut of memory\n$ second\n' + '\n'.join(map(str, range(30))))
    assert last_part(log) == [str(number) for number in range(30)]
    assert log_tail(log).split() == [str(number) for number in range(15, 30)]
    assert last_part(tmp_path / 'none') == []


def test_a_run_that_says_why_keeps_its_reason_and_an_older_reason_does_not_stay(tmp_path):
    failure, run = Failure(kind='error', reason='from outside'), tmp_path / 'arm' / 'seed_3'
    assert record_diagnosis(read_run(run, 3), failure, 'config.py', RunRecord()).outcome == 'failed: from outside'
    written = json.loads((run / 'run.json').read_text())
    assert (written['seed'], written['failure'], written['config']) == (3, vars(failure), 'config.py')

    own = dict(seed=3, state='failed', reason='its own', iter=4, max_iters=9)
    write_json(run / 'run.json', own)
    assert record_diagnosis(read_run(run, 3), failure, 'config.py', RunRecord()).reason == 'its own'
    later = record_diagnosis(read_run(run, 3), failure, 'config.py', read_run(run, 3).record)
    assert later.outcome == 'failed at iteration 4 of 9: from outside'

    write_json(run / 'run.json', dict(own, state='running'))  # and nobody holds its lock
    assert record_diagnosis(read_run(run, 3), failure, 'config.py', RunRecord()).state == 'failed'
    write_json(run / 'run.json', dict(own, state='finished', reason=None))
    assert record_diagnosis(read_run(run, 3), failure, 'config.py', RunRecord()).state == 'finished'
