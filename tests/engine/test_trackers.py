"""The back ends of Weights & Biases and MLflow log what MMEngine's own log has, and neither code nor a password."""

import json
import sys

import pytest

from mmlape.cli import main

TWO_STEPS = ('train_cfg.max_iters=2', 'train_cfg.val_interval=2')
RECORDER = """
from types import SimpleNamespace
calls = []
def recorder(name): return lambda *args, **more: calls.append((name, args, more))
config = SimpleNamespace(update=recorder('config'))
def __getattr__(name):
    if name.startswith('__'): raise AttributeError(name)
    return recorder(name)
"""


@pytest.mark.parametrize('store', ['http://someone:secret@store.example', ''])
def test_back_ends_log_what_the_own_log_has_and_no_secrets(config, tmp_path, monkeypatch, store):
    """Of modules that record each call."""
    (tmp_path / 'packages').mkdir()
    for name in ('wandb', 'mlflow'):
        (tmp_path / 'packages' / f'{name}.py').write_text(RECORDER)
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(tmp_path / 'packages')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv('MLFLOW_TRACKING_URI', store)
    types = ('LocalVisBackend', 'mmlape.WandbBackend', 'mmlape.MlflowBackend')
    options = (f'visualizer.vis_backends={[dict(type=name) for name in types]}', 'visualizer.type=Visualizer')
    work_dir = tmp_path / 'run'
    assert main(['train', str(config), '--work-dir', str(work_dir), '--cfg-options', *TWO_STEPS, *options]) == 0
    (own,) = work_dir.glob('*/vis_data/scalars.json')
    rows = [json.loads(line) for line in own.read_text().splitlines()]
    wandb, mlflow = (sys.modules.pop(name).calls for name in ('wandb', 'mlflow'))
    assert not [name for name, *_ in wandb if name in ('run', 'save', 'Artifact', 'log_artifact')], 'no code'
    tracked = {args for name, args, _ in mlflow if name == 'set_tracking_uri'}
    assert tracked == {(store or f'sqlite:///{tmp_path}/mlflow.db',)}
    assert not any('secret' in file.read_text(errors='replace') for file in work_dir.rglob('*.*') if file.is_file())
    for calls, log in ((wandb, 'log'), (mlflow, 'log_metrics')):
        logged = [args[0] for name, args, _ in calls if name == log]
        for key in ('loss', 'mIoU'):
            assert [row[key] for row in logged if key in row] == [row[key] for row in rows if key in row] != []
