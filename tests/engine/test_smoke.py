"""`mmlape train --smoke`: a trial of a run that leaves nothing."""

import pytest
import tiny

from mmlape.checkpoint import read_checkpoint
from mmlape.cli import main
from mmlape.console.terminal import file_size
from mmlape.lab.config.config_file import load_config
from mmlape.lab.training.smoke import smoke, summary
from mmlape.lab.training.trainer import train

KEYS = ('seconds_per_iter', 'seconds_per_validation', 'peak_memory_mib', 'checkpoint_mib', 'hours', 'disk_mib')
EPOCHS = tiny.EPOCHS + 'train_cfg.update(val_interval=2)\n'


@pytest.mark.parametrize(
    ('extra', 'expected'),
    [pytest.param('', (6, 2, 3), marks=pytest.mark.release), (EPOCHS, (12, 2, 4))],
    ids=['iterations', 'epochs'],
)
def test_the_estimate_is_that_of_the_complete_run(extra, expected, config, tmp_path):
    cfg = load_config(tiny.write_config(tmp_path, config.parent / 'data', extra))
    text = cfg.pretty_text
    facts = smoke(cfg, tmp_path / 'run', seed=0)
    assert cfg.pretty_text == text and [path.name for path in tmp_path.iterdir()] == ['tiny.py']
    assert (facts['iterations'], facts['validations'], facts['checkpoints']) == expected
    assert all(facts[key] > 0 for key in KEYS) and facts['images'] == 5
    train(cfg, tmp_path / 'run', seed=0)
    record = train(cfg, tmp_path / 'run', resume=True)
    assert (record.iter, record.max_iters) == (expected[0],) * 2
    evaluations = (tmp_path / 'run' / 'evaluations.jsonl').read_text().splitlines()
    assert len(evaluations) == facts['validations']
    files = list((tmp_path / 'run').glob('*.pth'))
    assert len(files) <= facts['checkpoints']  # one of them while another is replaced
    largest = max(file.stat().st_size for file in files) / 2**20
    assert facts['checkpoint_mib'] == pytest.approx(largest, rel=0.1)
    seconds = facts['iterations'] * facts['seconds_per_iter'] + facts['validations'] * facts['seconds_per_validation']
    assert facts['hours'] == pytest.approx(seconds / 3600)
    assert facts['disk_mib'] == pytest.approx(facts['checkpoints'] * facts['checkpoint_mib'])
    disk = file_size(facts['disk_mib'] * 2**20)
    assert f'{facts["checkpoints"]} checkpoints at a time, {disk} of' in list(summary(facts))[-1]
    assert any(f'{expected[0]} iterations and {expected[1]} validations' in line for line in summary(facts))


def test_the_checkpoint_of_two_steps_is_resumed(config, tmp_path, monkeypatch):
    """With accumulation two steps are four iterations; the second part starts behind them."""
    seen = []
    original = train

    def watched(cfg, work_dir, **options):
        try:
            return original(cfg, work_dir, **options)
        finally:
            paths = sorted(type(tmp_path)(work_dir).glob('iter_*.pth'))
            seen.append([read_checkpoint(path)['meta']['iter'] for path in paths])

    monkeypatch.setattr('mmlape.lab.training.smoke.train', watched)
    cfg = load_config(tiny.write_config(tmp_path, config.parent / 'data'), {'auto_scale_lr.base_batch_size': 4})
    cfg.train_cfg.update(max_iters=12, val_interval=50)
    cfg.default_hooks.checkpoint.interval = 50
    facts = smoke(cfg, tmp_path / 'run', seed=0, batch='accumulate')
    assert seen == [[4], [4]] and facts['iterations'] == 24 and facts['validations'] == 1


def test_what_would_end_the_run_ends_the_trial_and_leaves_nothing(config, tmp_path, capsys):
    tried = tiny.write_config(tmp_path, config.parent / 'data')
    words = ['train', str(tried), '--work-dir', str(tmp_path / 'run'), '--smoke']
    assert main([*words, '--cfg-options', 'train_dataloader.batch_size=3']) == 1
    assert 'Choose one' in capsys.readouterr().err
    assert main([*words, '--cfg-options', 'optim_wrapper.optimizer.lr=1e30', '--seed', '0']) == 1
    assert 'not finite' in capsys.readouterr().err
    assert main([*words, '--resume']) == 1 and '--smoke tries a new run' in capsys.readouterr().err
    assert main([*words, '--seed', '0']) == 0
    printed = capsys.readouterr().out
    assert 'the complete run: 6 iterations and 2 validations' in printed and 'which was resumed' in printed
    assert [path.name for path in tmp_path.iterdir()] == ['tiny.py']
    assert main([*words, '--cfg-options', 'train_cfg.max_iters=2']) == 1
    assert 'fewer than 3 steps' in capsys.readouterr().err
