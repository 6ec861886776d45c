"""The console command: its table, its exit statuses, and what it imports before it has to."""

import os
import runpy
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import tiny
from each import each
from mmengine.logging import MMLogger

import mmlape
from mmlape.cli import main
from mmlape.commands import COMMANDS

TOOLS = Path(__file__).parents[2] / 'tools'
WRONG = (sys.executable, '-m', 'mmlape', 'print-params', 'mmlape::segmenter/no-such-config.py')


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


def test_bad_usage_and_words_for_help_and_version(capsys):
    for words, status, printed in each((
        (['--version'], 0, f'mmlape {mmlape.__version__}\n'),
        (['-V'], 0, f'mmlape {mmlape.__version__}\n'),
        ([], 2, 'usage: mmlape COMMAND'),
        (['mulit-seed'], 2, "no command 'mulit-seed'; did you mean multi-seed"),
        (['xyzzy'], 2, ', '.join(COMMANDS)),
        (['doctor', '--no-such-option'], 2, '--no-such-option'),
    )):  # fmt: skip
        assert main(words) == status
        streams = capsys.readouterr()
        assert printed in (streams.err if words and status else streams.out)


def test_every_tool_of_a_command_is_its_command(monkeypatch, capsys):
    for tool in each(sorted(path for path in TOOLS.glob('*.py') if path.stem != 'rehearse')):
        monkeypatch.setattr(sys, 'argv', [str(tool), '--help'])
        with pytest.raises(SystemExit, match='0'):
            runpy.run_path(str(tool), run_name='__main__')
        assert f'usage: mmlape {tool.stem.replace("_", "-")}' in capsys.readouterr().out


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
