"""TensorBoard, Weights & Biases and MLflow beside MMEngine's own log, without network."""

import json
import sys

import pytest

from mmlape.cli import main
from mmlape.lab.engine import trackers

TWO_STEPS = ('--cfg-options', 'train_cfg.max_iters=2', 'train_cfg.val_interval=2')
RECORDER = """
from types import SimpleNamespace
class MlflowException(Exception): pass
calls = []
def recorder(name): return lambda *args, **more: calls.append((name, args, more))
config = SimpleNamespace(update=recorder('config'))
def __getattr__(name):
    if name.startswith('__'): raise AttributeError(name)
    return recorder(name)
"""


def _trained(config, work_dir, *options):
    """Train two steps; return losses and mIoU of MMEngine's own log."""
    assert main(['train', str(config), '--work-dir', str(work_dir), *options, *TWO_STEPS]) == 0
    (folder,) = work_dir.glob('*/vis_data')
    rows = [json.loads(line) for line in (folder / 'scalars.json').read_text().splitlines()]
    losses, scores = ([row[key] for row in rows if key in row] for key in ('loss', 'mIoU'))
    assert len(losses) == 2 and len(scores) == 1
    return folder, losses, scores


def test_trackers_are_flags(config, tmp_path, monkeypatch):
    """Their logs hold the losses that MMEngine's own log has; W&B and MLflow are modules that record each call."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    (tmp_path / 'packages').mkdir()
    for name in ('wandb', 'mlflow'):
        (tmp_path / 'packages' / f'{name}.py').write_text(RECORDER)
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(tmp_path / 'packages')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv('WANDB_PROJECT', 'mine')
    monkeypatch.setenv('MLFLOW_TRACKING_URI', store := 'http://someone:secret@store.example')
    work_dir = tmp_path / 'arm' / 'seed_7'
    folder, losses, scores = _trained(config, work_dir, '--tensorboard', '--wandb', '--mlflow')
    events = EventAccumulator(str(folder)).Reload()
    assert [event.value for event in events.Scalars('loss')] == pytest.approx(losses)
    wandb, mlflow = (sys.modules.pop(name).calls for name in ('wandb', 'mlflow'))
    started = dict(project='mine', name='arm/seed_7', group='arm', dir=str(work_dir), resume='auto')
    assert wandb[0] == ('init', (), started)
    tracked = {args for name, args, _ in mlflow if name == 'set_tracking_uri'}
    assert tracked == {(store,)} and not any('secret' in file.read_text() for file in work_dir.rglob('*.py'))
    monkeypatch.delenv('MLFLOW_TRACKING_URI')
    assert trackers.MlflowBackend(str(work_dir))._tracking_uri == f'sqlite:///{tmp_path}/mlflow.db'
    assert ('set_experiment', ('mmlape',), {}) in mlflow and (
        'set_tag',
        ('mlflow.runName', 'arm/seed_7'),
        {},
    ) in mlflow
    for calls, log, end in ((wandb, 'log', 'join'), (mlflow, 'log_metrics', 'end_run')):
        logged = [args[0] for name, args, _ in calls if name == log]
        assert [row['loss'] for row in logged if 'loss' in row] == losses and calls[-1][0] == end
        assert [row['mIoU'] for row in logged if 'mIoU' in row] == scores


def test_weights_and_biases_offline(config, tmp_path, monkeypatch):
    pytest.importorskip('wandb')
    monkeypatch.setenv('WANDB_MODE', 'offline')
    _, losses, _ = _trained(config, tmp_path / 'work', '--wandb')
    (file,) = (tmp_path / 'work' / 'wandb').glob('offline-run-*/run-*.wandb')
    assert file.stat().st_size > 1000 and not list((tmp_path / 'work' / 'wandb').rglob('*.py')), 'no code'
    assert all(f'{loss}'[:8].encode() in file.read_bytes() for loss in losses)


def test_mlflow_in_a_file(config, tmp_path, monkeypatch, capsys):
    mlflow = pytest.importorskip('mlflow')
    monkeypatch.chdir(tmp_path)
    _, losses, scores = _trained(config, tmp_path / 'work', '--mlflow')
    mlflow.set_tracking_uri(f'sqlite:///{tmp_path}/mlflow.db')
    client = mlflow.MlflowClient()
    (run,) = client.search_runs([client.get_experiment_by_name('mmlape').experiment_id])
    assert run.info.run_name == run.data.tags['arm'] == 'work' and run.info.status == 'FINISHED'
    assert [metric.value for metric in client.get_metric_history(run.info.run_id, 'loss')] == losses
    assert run.data.metrics['mIoU'] == scores[0]
    monkeypatch.setenv('MLFLOW_TRACKING_URI', 'sqlite:////proc/nothing/mlflow.db')
    assert main(['train', str(config), '--work-dir', str(tmp_path / 'other'), '--mlflow']) == 1
    assert '--mlflow: sqlite:////proc/nothing/mlflow.db cannot be used' in capsys.readouterr().err
    assert not (tmp_path / 'other').exists()
    assert 'config.py' in {entry.path for entry in client.list_artifacts(run.info.run_id)}
