"""`multi_seed` on real trainings: side by side, failing, killed, resumed, two commands at once; and `status`."""

import json
import os
import signal
from pathlib import Path

import numpy as np
import pytest
import tiny

from mmlape.cli import main
from mmlape.lab.runs.record import running_in
from mmlape.lab.runs.run import read_arms

MULTI_SEED, STATUS = tiny.ROOT / 'tools' / 'multi_seed.py', (*tiny.MMLAPE, 'status')
SHORT = ('--cfg-options', 'train_cfg.max_iters=2', 'train_cfg.val_interval=2')


def _run(config, work_dir, *options, status=0, **more):
    return tiny.run(MULTI_SEED, *options, '--work-dir', work_dir, cwd=config.parent, status=status, **more)


def _start(config, work_dir, *options, **more):
    return tiny.start(MULTI_SEED, *options, '--work-dir', work_dir, cwd=config.parent, **more)


def _log(work_dir, arm, seed):
    path = work_dir / arm / 'logs' / f'seed_{seed}.log'
    return path.read_text() if path.exists() else ''


def _starts(work_dir, arm, seed):
    return _log(work_dir, arm, seed).count('$ ')


def _processes(word: Path) -> list[str]:
    """Command lines of this machine that mention a path."""
    found = []
    for file in Path('/proc').glob('[0-9]*/cmdline'):
        try:
            line = file.read_bytes().replace(b'\0', b' ').decode(errors='replace')
        except OSError:
            continue
        if str(word) in line:
            found.append(line)
    return found


@tiny.in_a_fork
def test_two_arms_and_two_seeds_side_by_side_with_one_that_fails(config, tmp_path, python, capsys):
    arms = (config.name, '--arm', 'default', config.name, 'model.backbone.pe_joining=default')
    options = (*arms, '--seeds', 7, 3, '--parallel', 2, *SHORT)
    (tmp_path / 'tiny').mkdir()
    obstacle = tmp_path / 'tiny' / 'seed_7'
    obstacle.write_text('a file where a folder should be')
    said = _run(config, tmp_path, *options, status=1, **python)
    assert 'tiny, seed 7: FAILED with exit status 1: cannot write into' in said
    assert '    mmlape: error: cannot write into' in said  # the end of its log
    assert said.count(': finished after') == 3 and 'not counted: seed 7, missing' in said

    obstacle.unlink()
    said = _run(config, tmp_path, *options)
    assert said.count('finished before, skipped') == 3 and said.count('finished after') == 1
    assert f'mmlape report {tmp_path}' in said
    runs = [(arm, seed) for arm in ('tiny', 'default') for seed in (7, 3)]
    assert [_starts(tmp_path, *run) for run in runs] == [2, 1, 1, 1]
    for arm in ('tiny', 'default'):
        records = [tiny.record(tmp_path / arm / f'seed_{seed}') for seed in (7, 3)]
        assert [record['seed'] for record in records] == [7, 3]
        summary = json.loads((tmp_path / arm / 'summary.json').read_text())
        for which in ('last', 'best'):
            values = [record[which]['metrics']['mIoU'] for record in records]
            entry = summary[which]['metrics']['mIoU']
            assert len(set(values)) == entry['n'] == 2
            assert entry['mean'] == pytest.approx(np.mean(values), rel=1e-12)
            assert entry['std'] == pytest.approx(np.std(values, ddof=1), rel=1e-9)

    assert main(['status', str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert '4 finished' in shown and '2 of 2' in shown and list(read_arms(tmp_path)) == ['tiny', 'default']


def test_kills_lose_nothing_and_start_nothing_twice(config, tmp_path):
    """Both trainings wait in their first evaluation while the command is killed, and go on without waiting."""
    options = (config.name, '--seeds', 1, 2, '--parallel', 2)
    first = _start(config, tmp_path, *options, TROUBLE='wait:3')
    runs = [tmp_path / 'tiny' / f'seed_{seed}' for seed in (1, 2)]
    tiny.until(lambda: all('waiting' in _log(tmp_path, 'tiny', seed) for seed in (1, 2)), first)
    first.kill()
    first.communicate()
    listed = json.loads(tiny.run(*STATUS, tmp_path, '--json', cwd=tmp_path))
    assert [(row['seed'], row['state'], row['host']) for row in listed] == [
        (seed, 'running', os.uname().nodename) for seed in (1, 2)
    ]
    assert _run(config, tmp_path, *options, '--dry-run').count(' watch ') == 2
    trainings = [running_in(run)['pid'] for run in runs]

    both = [_start(config, tmp_path, *options) for _ in range(2)]
    for command in both:
        line = ''
        while 'seed 2: already running' not in line:
            line = command.stdout.readline()
            assert line, 'it ended before'
    for training in trainings:
        os.kill(training, signal.SIGKILL)
    said = [command.communicate(timeout=tiny.GUARD)[0] for command in both]
    assert [command.returncode for command in both] == [0, 0], said
    assert sum(text.count(': finished after') for text in said) == 2, said
    for seed in (1, 2):
        assert _starts(tmp_path, 'tiny', seed) == 2
        assert 'resuming from' in _log(tmp_path, 'tiny', seed) and 'iter_3.pth' in _log(tmp_path, 'tiny', seed)
        assert tiny.record(tmp_path / 'tiny' / f'seed_{seed}')['state'] == 'finished'


@pytest.mark.release
def test_runs_that_share_the_machine_equal_runs_alone_and_one_that_dies_leaves_the_others(config, tmp_path):
    """Weights, optimiser and evaluations, bit for bit; the one that is killed continues later."""
    seeds = (1, 2, 3)
    said = _run(config, tmp_path / 'alone', config.name, '--seeds', *seeds, '--parallel', 1)
    assert 'one after the other' in said
    options = (config.name, '--seeds', *seeds, '--per-gpu', 3)
    together = _start(config, tmp_path / 'together', *options, TROUBLE='rest:4:0')
    tiny.until(lambda: 'waiting' in _log(tmp_path / 'together', 'tiny', 2), together)
    os.kill(running_in(tmp_path / 'together' / 'tiny' / 'seed_2')['pid'], signal.SIGKILL)
    said = together.communicate(timeout=tiny.GUARD)[0]
    assert together.returncode == 1 and said.count(': finished after') == 2, said
    assert '1 CPU process a run, 3 side by side, 1 thread each' in said
    _run(config, tmp_path / 'together', *options)
    assert [_starts(tmp_path / 'together', 'tiny', seed) for seed in seeds] == [1, 2, 1]
    rows = json.loads(tiny.run(*STATUS, tmp_path / 'together', '--json', cwd=tmp_path))
    assert [(row['state'], row['sharing']) for row in rows] == [('finished', 3)] * 3
    for seed in seeds:
        alone, shared = (tmp_path / name / 'tiny' / f'seed_{seed}' for name in ('alone', 'together'))
        assert tiny.record(shared)['sharing'] == 3 and 'sharing' not in tiny.record(alone)
        assert tiny.evaluations(shared) == tiny.evaluations(alone)
        assert tiny.difference(shared / 'iter_6.pth', alone / 'iter_6.pth') == 0


@pytest.mark.release
def test_a_killed_training_is_marked_and_a_stopped_command_leaves_none_behind(config, tmp_path):
    """On two processes each; the first training is killed while it waits, the command while the second one does."""
    options = (config.name, '--seeds', 11, 12, '--processes', 2, '--parallel', 1)
    options += ('--cfg-options', 'train_dataloader.batch_size=1')
    command = _start(config, tmp_path, *options, TROUBLE='wait:3')
    folder = tmp_path / 'tiny'
    tiny.until(lambda: 'waiting' in _log(tmp_path, 'tiny', 11), command)
    os.kill(running_in(folder / 'seed_11')['pid'], signal.SIGKILL)
    tiny.until(lambda: 'waiting' in _log(tmp_path, 'tiny', 12), command)
    killed = tiny.record(folder / 'seed_11')
    assert (killed['state'], killed['failure']['kind']) == ('failed', 'lost-worker')
    assert killed['reason'] == killed['failure']['reason'] == 'process 0 was killed by SIGKILL'
    command.send_signal(signal.SIGUSR1)
    said = command.communicate(timeout=tiny.GUARD)[0]
    assert command.returncode == 138
    assert 'tiny, seed 11: FAILED with exit status' in said
    assert _processes(folder) == [] and running_in(folder / 'seed_12') is None
    assert tiny.record(folder / 'seed_12')['world_size'] == 2
    rows = json.loads(tiny.run(*STATUS, tmp_path, '--json', cwd=tmp_path))
    assert [row['state'] for row in rows] == ['failed', rows[1]['state']] and rows[1]['state'] in ('failed', 'broken')
    assert rows[0]['reason'] == killed['reason']
    said = _run(config, tmp_path, *options, '--dry-run')
    assert said.count(' resume ') == 2
