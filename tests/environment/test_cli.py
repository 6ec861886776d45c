"""The console command: its table, its exit statuses, and what it imports before it has to."""

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import tiny

import mmlape
from mmlape.cli import main
from mmlape.commands import COMMANDS, command_module

TOOLS = Path(__file__).parents[2] / 'tools'
WRONG = (sys.executable, '-m', 'mmlape', 'print-params', 'mmlape::segmentation/no-such-config.py')


def call(*args: str, **env: str) -> subprocess.CompletedProcess:
    command = [sys.executable, '-m', 'mmlape', *args]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **env})


def test_version():
    done = call('--version')
    assert done.returncode == 0
    assert done.stdout.strip() == f'mmlape {mmlape.__version__}'


def test_help_names_every_command():
    done = call('--help')
    assert done.returncode == 0
    for name in COMMANDS:
        assert f'\n  {name} ' in done.stdout


def test_no_command_is_bad_usage(capsys):
    assert main([]) == 2
    assert 'usage: mmlape COMMAND' in capsys.readouterr().out


def test_unknown_command_offers_close_ones():
    done = call('mulit-seed')
    assert done.returncode == 2
    assert "no command 'mulit-seed'; did you mean multi-seed" in done.stderr


def test_unknown_command_without_close_ones_lists_all(capsys):
    assert main(['xyzzy']) == 2
    error = capsys.readouterr().err
    assert all(name in error for name in COMMANDS)


@pytest.mark.parametrize('name', COMMANDS)
def test_every_command_has_a_module_and_help(name, capsys):
    module = command_module(name)
    assert callable(module.run)
    assert main([name, '--help']) == 0
    assert f'usage: mmlape {name}' in capsys.readouterr().out


@pytest.mark.parametrize('tool', sorted(path.stem for path in TOOLS.glob('*.py')))
def test_every_tool_is_its_command(tool):
    done = subprocess.run([sys.executable, TOOLS / f'{tool}.py', '--help'], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert f'usage: mmlape {tool.replace("_", "-")}' in done.stdout


def test_checkpoints_are_trusted_before_a_command_reads_them_and_only_if_asked(monkeypatch):
    calls = []
    monkeypatch.setattr('mmlape.checkpoint.reading.trust_checkpoints', lambda: calls.append('trust'))
    monkeypatch.setattr('mmlape.commands.checkpoint.run', lambda args: calls.append('read'))
    for options in (['--trust-checkpoint'], []):
        assert main(['checkpoint', 'inspect', 'file.pth', *options]) == 0
    assert calls == ['trust', 'read', 'read']


def test_bad_option_is_bad_usage(capsys):
    assert main(['doctor', '--no-such-option']) == 2
    assert '--no-such-option' in capsys.readouterr().err


def test_a_module_that_does_not_import_is_named(capsys):
    assert main(['list-models', '--import', 'no_such_module']) == 1
    assert 'error: --import no_such_module: No module named' in capsys.readouterr().err


@pytest.mark.parametrize('words', [['demo', '--shorten', '0'], ['train', 'a.py', '--log-grad-norm', '0']])
def test_what_must_be_positive(words, capsys):
    assert main(words) == 2 and '0 is not a positive number' in capsys.readouterr().err


def test_error_is_one_message_without_traceback():
    printed = tiny.run(*WRONG, cwd=tiny.ROOT, status=1)
    assert printed.startswith('mmlape: error: ')
    assert 'no-such-config.py' in printed
    assert 'Traceback' not in printed


def test_debug_shows_the_traceback():
    assert 'Traceback' in tiny.run(*WRONG, cwd=tiny.ROOT, status=1, MMLAPE_DEBUG='1')


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


def test_mmcv_ops_are_never_imported_by_the_registries():
    script = 'import mmlape, mmlape.registry, sys; print("mmcv.ops" in sys.modules)'
    done = subprocess.run([sys.executable, '-c', script], capture_output=True, text=True)
    assert done.stdout.strip() == 'False', done.stderr


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
                sys.exit(not type(built).__module__.startswith('mmlape.evaluation.'))"""
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


def test_a_shell_completes_commands_actions_and_options(tmp_path):
    pytest.importorskip('shtab')
    (tmp_path / 'mmlape').write_text(call('completion', 'bash').stdout)
    (tmp_path / 'one.py').touch()
    for typed, found in (
        ('che', 'check-data checkpoint'),
        ('checkpoint pu', 'publish push pull'),
        ('train --res', '--resume'),
        ('train one', 'one.py'),
    ):
        words = ['mmlape', *typed.split()]
        script = f'. ./mmlape; COMP_WORDS=({" ".join(words)}); COMP_CWORD={len(words) - 1}; _shtab_mmlape mmlape '
        script += f'{words[-1]}; echo ${{COMPREPLY[@]}}'
        done = subprocess.run(['bash', '-c', script], cwd=tmp_path, capture_output=True, text=True)
        assert done.stdout.split() == found.split(), done.stderr
