"""A frozen part that runs once: what is stored gives what computing it gives, and what cannot be stored is refused."""

import os
import shutil

import pytest
import tiny
import torch
from config_helpers import build
from PIL import Image

from mmlape.checkpoint.opening import read_checkpoint
from mmlape.errors import ConfigError, DataError
from mmlape.lab.config.config_file import load_config
from mmlape.lab.experiments.report import report_work_dir
from mmlape.lab.training.frozen.hook import CachedFeaturesHook
from mmlape.lab.training.frozen.part import FrozenPart
from mmlape.lab.training.frozen.store import FeatureStore
from mmlape.lab.training.trainer import train

FROZEN = """
model['backbone'] = dict(
    type='mmlape.TimmViT', model_name='vit_tiny_patch16_224', img_size=32, patch_size=8, frozen=True,
    remove_position=dict(how='constant', directions=2),
    model_args=dict(embed_dim=24, depth=2, num_heads=3),
)
model['decode_head']['in_channels'] = 24
cache_features = dict(views=2, dtype='float32')
"""


@pytest.fixture
def config(tmp_path, monkeypatch):
    monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path / 'cache'))
    return tiny.write_config(tmp_path, tiny.write_data(tmp_path / 'data', train=5, val=2), FROZEN)


@pytest.fixture
def pretrained(config, tmp_path):
    model = build(load_config(config)).backbone
    torch.save({'state_dict': model.state_dict()}, tmp_path / 'vit.pth')
    with config.open('a') as file:
        file.write(
            f"model['backbone']['init_cfg'] = dict(type='Pretrained', checkpoint={str(tmp_path / 'vit.pth')!r})\n"
        )
    return config


def run(config, work_dir, changes=None, seed=1, **options):
    train(load_config(config, changes or {}), work_dir, seed=seed, **options)
    return read_checkpoint(work_dir / 'iter_6.pth')['state_dict'], tiny.evaluations(work_dir)


def apart(mine, other):
    return max(float((mine[name].double() - other[name].double()).abs().max()) for name in mine)


def files(tmp_path):
    return {path: path.stat().st_mtime_ns for path in (tmp_path / 'cache').rglob('*.safetensors')}


def computed(monkeypatch):
    """Count the images that the frozen part computes."""
    counts, rows = [], FrozenPart._rows

    def counted(part, batch, training):
        counts.append(len(batch['inputs']))
        return rows(part, batch, training)

    monkeypatch.setattr(FrozenPart, '_rows', counted)
    return counts


def test_training_from_the_store_equals_training_on_the_same_views(pretrained, tmp_path, monkeypatch):
    config = pretrained
    stored, scores = run(config, tmp_path / 'stored')
    assert len(files(tmp_path)) == 7
    with monkeypatch.context() as patched:
        patched.setattr(CachedFeaturesHook, 'before_train', lambda self, runner: None)
        plain, expected = run(config, tmp_path / 'plain')
    assert apart(stored, plain) < 1e-5
    assert [one['metrics'] for one in scores] == [one['metrics'] for one in expected]
    counts = computed(monkeypatch)
    again, _ = run(config, tmp_path / 'again')
    assert apart(stored, again) == 0 and sum(counts) == 2 + 1  # what is tried before a run
    other, _ = run(config, tmp_path / 'other', seed=2)  # of the same views
    assert apart(stored, other) > 0 and len(files(tmp_path)) == 7
    half, _ = run(config, tmp_path / 'half', {'cache_features.dtype': 'float16'})
    assert 0 < apart(stored, half) < 1e-2 and len(files(tmp_path)) == 14


def test_views_of_each_seed_are_its_own(pretrained, tmp_path, monkeypatch):
    own = {'cache_features.per_seed': True}
    stored, _ = run(pretrained, tmp_path / 'stored', own)
    run(pretrained, tmp_path / 'other', own, seed=2)
    assert len(files(tmp_path)) == 5 + 5 + 2  # validation is shared
    monkeypatch.setattr(CachedFeaturesHook, 'before_train', lambda self, runner: None)
    plain, _ = run(pretrained, tmp_path / 'plain', own)
    shared, _ = run(pretrained, tmp_path / 'shared')
    assert apart(stored, plain) < 1e-5 < apart(stored, shared)


def test_a_resumed_run_equals_an_uninterrupted_one(config, tmp_path, monkeypatch):
    complete, _ = run(config, tmp_path / 'complete')

    def interrupted(self, runner, batch_idx, data_batch=None, outputs=None):
        if runner.iter == 4:
            raise RuntimeError('interrupted')

    with monkeypatch.context() as patched, pytest.raises(RuntimeError, match='interrupted'):
        patched.setattr(CachedFeaturesHook, 'after_train_iter', interrupted)
        run(config, tmp_path / 'resumed')
    resumed, _ = run(config, tmp_path / 'resumed', resume=True)
    assert apart(complete, resumed) == 0


def test_only_what_has_changed_is_computed_again(config, tmp_path, monkeypatch):
    run(config, tmp_path / 'first')
    before = files(tmp_path)
    damaged = min(before, key=lambda path: path.stat().st_size)  # of validation, with one view
    content = bytearray(damaged.read_bytes())
    content[-20:] = bytes(20)
    damaged.write_bytes(content)
    image = tmp_path / 'data/images/training/0.png'
    Image.open(image).transpose(Image.Transpose.FLIP_LEFT_RIGHT).save(image)
    counts = computed(monkeypatch)
    run(config, tmp_path / 'second')
    after = files(tmp_path)
    assert len(set(after) - set(before)) == 1  # of the image
    assert {path for path in before if after[path] != before[path]} == {damaged}
    assert sum(counts) - 3 == 2 + 1  # two views of the image of training, one of validation
    run(config, tmp_path / 'third', {'model.backbone.model_args.num_heads': 2})  # another part
    assert len(files(tmp_path)) == len(after) + 7


def test_images_that_are_normalised_otherwise_have_other_features(pretrained, tmp_path):
    for place in ('the model', 'the top'):
        for std in (127.5, 60.0):
            before = len(files(tmp_path))
            cfg = load_config(pretrained, {'model.data_preprocessor.std': [std] * 3})
            if place == 'the top':  # as MMPretrain's configs have it
                cfg.data_preprocessor = cfg.model.pop('data_preprocessor')
            train(cfg, tmp_path / f'{place} {std}', seed=1)
            assert len(files(tmp_path)) == before + 7, (place, std)


def test_images_of_several_sizes_are_refused(config, tmp_path):
    cfg = load_config(config)
    del cfg.model.data_preprocessor.size
    cfg.model.data_preprocessor.size_divisor = 8
    cfg.train_dataloader.dataset.pipeline[2] = dict(type='RandomResize', scale=(48, 48), ratio_range=(0.5, 2))
    with pytest.raises(ConfigError, match='differ in size'):
        train(cfg, tmp_path / 'run', seed=1)


def test_a_folder_that_others_can_write_is_refused(tmp_path):
    os.umask(os.umask(0) | 0o022)
    store = FeatureStore(tmp_path, {}, ['a'], 1, torch.float16)
    shutil.rmtree(store.folder)
    store.folder.mkdir()
    store.folder.chmod(0o777)
    with pytest.raises(Exception, match='you alone can write'):
        FeatureStore(tmp_path, {}, ['a'], 1, torch.float16)


def test_two_processes_train_as_one_from_one_store(config, tmp_path):
    norm = "model.decode_head.norm_cfg={'type':'GN','num_groups':4}"
    fixed = [norm, 'model.decode_head.dropout_ratio=0', 'auto_scale_lr.base_batch_size=4']
    tiny.train(config, tmp_path / 'one', '--seed', 1, '--cfg-options', *fixed, 'train_dataloader.batch_size=4')
    before = files(tmp_path)
    shutil.rmtree(tmp_path / 'cache')
    script = tiny.ROOT / 'tools' / 'dist_train.sh'
    tiny.run(script, config, 2, '--work-dir', tmp_path / 'two', '--seed', 1, '--cfg-options', *fixed, cwd=tmp_path)
    assert set(files(tmp_path)) == set(before)
    assert tiny.difference(tmp_path / 'one/iter_6.pth', tmp_path / 'two/iter_6.pth') < 1e-5


def test_a_report_tells_of_shared_views_and_averages_no_run_without_them(config, tmp_path):
    for seed in (1, 2):
        run(config, tmp_path / f'runs/arm/seed_{seed}', seed=seed)
    report, _ = report_work_dir(tmp_path / 'runs')
    assert any('share 2 views of each image' in line for line in report.warnings)
    run(config, tmp_path / 'runs/arm/seed_3', {'cache_features': None}, seed=3)
    with pytest.raises(DataError, match='cache_features'):
        report_work_dir(tmp_path / 'runs')
