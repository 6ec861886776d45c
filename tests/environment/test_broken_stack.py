"""Packages of the stack that another tool has changed, or that do not import, and Ctrl-C while they are imported."""

import os
import subprocess
import sys
from importlib import import_module
from unittest import mock

import pytest
import tiny

from mmlape.cli import main

MMSEG = 'mmseg::segmenter/segmenter_vit-t_mask_8xb1-160k_ade20k-512x512.py'


@pytest.mark.release
def test_a_base_of_mmseg_is_found_and_nothing_is_installed(tmp_path):
    (tmp_path / 'config.py').write_text(f'_base_ = {MMSEG!r}\n')
    code = f"""if True:
        import subprocess
        import mmlape.registry
        from mmengine.config import Config
        from mmengine.hub import get_config
        subprocess.run = subprocess.Popen = subprocess.check_call = None  # what pip would be started by
        assert get_config({MMSEG!r}).model.type == Config.fromfile('config.py').model.type == 'EncoderDecoder'"""
    done = subprocess.run(
        [sys.executable, '-c', code], cwd=tmp_path, env=tiny.environment(), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.release
@pytest.mark.parametrize(('version', 'multimodal'), [('4.57.1', True), ('5.0.0', False)])
def test_mmpretrain_has_no_multimodal_models_beside_transformers_5(version, multimodal, tmp_path):
    (tmp_path / 'transformers.dist-info').mkdir()
    (tmp_path / 'transformers.dist-info' / 'METADATA').write_text(f'Name: transformers\nVersion: {version}\n')
    code = 'import mmlape.registry; from mmpretrain.utils import dependency; print(dependency.WITH_MULTIMODAL)'
    env = dict(tiny.environment(), PYTHONPATH=os.pathsep.join([str(tmp_path), str(tiny.ROOT)]))
    done = subprocess.run([sys.executable, '-c', code], env=env, capture_output=True, text=True)
    assert done.stdout == f'{multimodal}\n', done.stderr


@pytest.mark.parametrize('line', ['assert False, "MMCV==2.3.6 is used but incompatible"', 'import no_such_module'])
def test_a_package_that_does_not_import_is_one_line_that_names_the_doctor(line, tmp_path, monkeypatch, capsys):
    (tmp_path / 'a_broken_package.py').write_text(line)
    monkeypatch.syspath_prepend(tmp_path)
    module = import_module('mmlape.commands.doctor')
    monkeypatch.setattr(module, 'run', lambda args: import_module('a_broken_package'))
    assert main(['doctor']) == 1
    printed = capsys.readouterr().err
    assert printed.count('\n') == 1 and '`mmlape doctor` checks the installation' in printed
    assert ('MMCV==2.3.6' in printed) or ("No module named 'no_such_module'" in printed)
    monkeypatch.setenv('MMLAPE_DEBUG', '1')
    with pytest.raises((AssertionError, ImportError)):
        main(['doctor'])


@pytest.mark.parametrize(
    ('error', 'status', 'line'),
    [
        (KeyboardInterrupt(), 130, 'interrupted'),
        (KeyboardInterrupt('saved at 3 of 9'), 130, 'saved at 3 of 9'),
        (OSError(28, 'No space left on device'), 1, 'error: No space left on device'),
    ],
)
def test_what_ends_a_command_is_one_line(error, status, line, monkeypatch, capsys):
    monkeypatch.setattr(import_module('mmlape.commands.doctor'), 'run', mock.Mock(side_effect=error))
    assert main(['doctor']) == status
    assert capsys.readouterr().err == f'mmlape: {line}\n'


@pytest.mark.release
def test_ctrl_c_while_modules_are_imported_is_one_line(tmp_path):
    """In forks of one interpreter, which has imported torch."""
    code = """if True:
        import os, signal, sys, torch
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
        class Interrupt:
            def find_spec(self, name, path=None, target=None):
                if name == module:
                    os.kill(os.getpid(), signal.SIGINT)
        sys.meta_path.insert(0, Interrupt())
        for module in ('mmengine', 'mmlape.commands.print_config', 'mmlape.lab.config.config_file'):
            if os.fork():
                print(os.waitstatus_to_exitcode(os.wait()[1]))
                continue
            from mmlape.cli import main
            sys.exit(main(['print-config', 'mmlape::segmenter/segmenter_deit-mini_1xb16-250i_mini-ade.py']))"""
    env = dict(os.environ, PYTHONPATH=str(tiny.ROOT))
    done = subprocess.run([sys.executable, '-u', '-c', code], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == (3 * '130\n', 3 * 'mmlape: interrupted\n')
