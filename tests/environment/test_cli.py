"""The console command: its table, its exit statuses, and what it imports before it has to."""

import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import tiny
import torch
from each import each
from mmengine.logging import MMLogger

import mmlape
from mmlape.cli import main
from mmlape.commands import COMMANDS, GROUPS

TOOLS = Path(__file__).parents[2] / 'tools'
WRONG = (sys.executable, '-m', 'mmlape', 'print-params', 'mmlape::segmenter/no-such-config.py')


def call(*args: str, **env: str) -> subprocess.CompletedProcess:
    command = [sys.executable, '-m', 'mmlape', *args]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **env})


@pytest.mark.parametrize('unbuffered', ['', '1'])
@pytest.mark.parametrize('words', ['--help', 'train --help', 'list-models'])
def test_a_reader_that_stops_is_no_error(words, unbuffered):
    """The reader has gone before the first byte is written, so nothing depends on the size of a pipe."""
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, '-m', 'mmlape', *words.split()]
    env = {**os.environ, 'PYTHONUNBUFFERED': unbuffered}
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, env=env)
    os.close(write)
    assert done.returncode in (0, 141) and done.stderr == ''  # argparse ends with 0


def test_help_names_every_command():
    done = call('--help')
    assert done.returncode == 0
    listed = re.findall(r'^(?:(\w+):|  ([a-z-]+) .*)$', done.stdout, re.M)
    assert [group or name for group, name in listed] == [
        word for group in GROUPS for word in (group, *(name for name in COMMANDS if COMMANDS[name].group == group))
    ]


def test_bad_usage_and_words_for_help_and_version(capsys):
    for words, status, printed in each((
        (['--version'], 0, f'mmlape {mmlape.__version__}\n'),
        (['-V'], 0, f'mmlape {mmlape.__version__}\n'),
        ([], 2, 'usage: mmlape COMMAND'),
        (['mulit-seed'], 2, "no command 'mulit-seed'; did you mean multi-seed"),
        (['xyzzy'], 2, ', '.join(COMMANDS)),
        (['doctor', '--no-such-option'], 2, '--no-such-option'),
        (['train', 'a.py', '--log-grad-norm', '0'], 2, '0 is not a positive whole number'),
        (['export-onnx', 'RUN', '--batch', 'many'], 2, "--batch: many is not a positive whole number, nor 'dynamic'"),
        (['train', 'a.py', '--arm', 'rows/lape'], 2, "--arm: arm 'rows/lape': a name consists of letters"),
        (['list-models', '--import', 'no_such_module'], 1, 'error: --import no_such_module: No module named'),
    )):  # fmt: skip
        assert main(words) == status
        streams = capsys.readouterr()
        assert printed in (streams.err if words and status else streams.out)


@pytest.mark.parametrize('tool', sorted(path.stem for path in TOOLS.glob('*.py') if path.stem != 'rehearse'))
def test_every_tool_of_a_command_is_its_command(tool):
    done = subprocess.run([sys.executable, TOOLS / f'{tool}.py', '--help'], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert f'usage: mmlape {tool.replace("_", "-")}' in done.stdout


def test_checkpoints_are_trusted_before_a_command_reads_them_and_only_if_asked(monkeypatch):
    calls = []
    monkeypatch.setattr('mmlape.checkpoint.opening.trust_checkpoints', lambda: calls.append('trust'))
    monkeypatch.setattr('mmlape.commands.checkpoint.run', lambda args: calls.append('read'))
    for options in (['--trust-checkpoint'], []):
        assert main(['checkpoint', 'inspect', 'file.pth', *options]) == 0
    assert calls == ['trust', 'read', 'read']


def test_an_error_is_one_message_and_a_traceback_for_debugging():
    printed = tiny.run(*WRONG, cwd=tiny.ROOT, status=1)
    assert printed.startswith('mmlape: error: ') and 'no-such-config.py' in printed
    assert 'Traceback' not in printed
    assert 'Traceback' in tiny.run(*WRONG, cwd=tiny.ROOT, status=1, MMLAPE_DEBUG='1')


def test_a_config_that_is_not_there_is_found_before_the_stack_is_imported():
    script = (
        'import sys\n'
        'import mmlape.cli\n'
        'for name in ("train", "test", "check-data", "print-config"):\n'
        '    status = mmlape.cli.main([name, "nosuch.py", *(["a.pth"] if name == "test" else [])])\n'
        '    assert (status, "torch" in sys.modules) == (1, False), name\n'
    )
    done = subprocess.run([sys.executable, '-c', script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr == 'mmlape: error: config nosuch.py does not exist\n' * 4


def test_quiet_prints_warnings_only_to_stderr(monkeypatch, capfd):
    def run(args):
        logger = MMLogger.get_instance('test_quiet_option')
        print('a table')
        logger.info('a step')
        logger.warning('a danger')

    monkeypatch.setattr('mmlape.commands.doctor.run', run)
    assert main(['doctor', '--quiet']) == 0
    printed = capfd.readouterr()
    assert printed.out == '' and 'a danger' in printed.err and 'a step' not in printed.err
    assert main(['doctor']) == 0
    assert 'a table' in capfd.readouterr().out


def test_a_path_that_cannot_be_used_is_one_message(monkeypatch, tmp_path, capsys):
    (tmp_path / 'file').touch()
    module = import_module('mmlape.commands.doctor')
    monkeypatch.setattr(module, 'run', lambda args: (tmp_path / 'file' / 'below').mkdir())
    assert main(['doctor']) == 1
    assert capsys.readouterr().err == f'mmlape: error: {tmp_path}/file/below: Not a directory\n'
    monkeypatch.setenv('MMLAPE_DEBUG', '1')
    with pytest.raises(NotADirectoryError):
        main(['doctor'])


@pytest.mark.parametrize(
    ('allocate', 'words'),
    [(lambda: np.ones(2**50), 'Unable to allocate'), (lambda: torch.empty(2**50), "can't allocate memory")],
)
def test_a_size_that_the_memory_cannot_hold_is_one_message(allocate, words, monkeypatch, capsys):
    monkeypatch.setattr('mmlape.commands.doctor.run', lambda args: allocate())
    assert main(['doctor']) == 1
    error = capsys.readouterr().err
    assert error.startswith('mmlape: error: out of memory: ') and words in error and 'choose a smaller size' in error
    assert error.count('\n') == 1
    monkeypatch.setattr('mmlape.commands.doctor.run', lambda args: torch.empty(2) + torch.empty(3))
    with pytest.raises(RuntimeError, match='must match the size'):
        main(['doctor'])


def test_nothing_heavy_is_imported_early():
    heavy = ('torch', 'mmcv', 'mmdet', 'mmseg', 'mmpretrain', 'timm', 'matplotlib', 'pandas')
    script = (
        'import sys\n'
        'import mmlape.cli\n'
        f'for argv in ([], *([name, "--help"] for name in {list(COMMANDS)})):\n'
        '    mmlape.cli.main(argv)\n'
        f'    heavy = [name for name in {heavy} if name in sys.modules]\n'
        '    assert not heavy, (argv, heavy)\n'
    )
    done = subprocess.run([sys.executable, '-c', script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.release
def test_a_metric_needs_its_own_task_only():
    """In forks of one interpreter, which has imported what both need."""
    script = """if True:
        import os, sys, mmcv, torchvision
        from mmengine.registry import METRICS
        for metric, other in (('IoUMetric', 'mmdet'), ('CocoMetric', 'mmseg')):
            assert not {'mmlape', other} & set(sys.modules)
            if os.fork():
                assert os.wait()[1] == 0, metric
            else:
                sys.modules[other] = None  # an import of it fails
                built = METRICS.build(dict(type=f'mmlape.{metric}'))
                sys.exit(not type(built).__module__.startswith('mmlape.lab.evaluation.'))"""
    done = subprocess.run([sys.executable, '-c', script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize('content', [None, 'import no_such_module', 'raise AttributeError'])
def test_the_package_imports_without_a_working_mmengine(content, tmp_path):
    """The doctor and the set-up start before there is one."""
    if content is None:
        code = 'import sys; sys.modules["mmengine"] = None; '
    else:
        (tmp_path / 'mmengine.py').write_text(content)
        code = f'import sys; sys.path.insert(0, {str(tmp_path)!r}); '
    done = subprocess.run([sys.executable, '-c', code + 'import mmlape'], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
