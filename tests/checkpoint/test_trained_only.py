"""Files of what was trained: with the file of their frozen part they are the complete checkpoint."""

import contextlib
import json
import pickle
import shutil

import numpy as np
import pytest
import tiny
import torch
from config_helpers import build
from each import each

import mmlape
from mmlape.checkpoint import converting
from mmlape.checkpoint.converting import average, convert
from mmlape.checkpoint.loading import completed
from mmlape.checkpoint.opening import OpenedFile, open_file, read_checkpoint
from mmlape.checkpoint.trained_alone import KEY, frozen_parts, frozen_tensors
from mmlape.cli import main
from mmlape.errors import CheckpointError
from mmlape.lab.config.config_file import load_config
from mmlape.lab.inference.prediction import predict_batch
from mmlape.lab.training.trainer import train

VIT = """
model['backbone'] = dict({vit}, init_cfg=dict(type='Pretrained', checkpoint={checkpoint!r}))
model['decode_head']['in_channels'] = 24
"""
ARGS = 'model_args=dict(embed_dim=24, depth=4, num_heads=3)'
NAME = f"model_name='vit_tiny_patch16_224', img_size=32, {ARGS}"
VITS = {
    'plain': f"type='mmlape.TimmViT', frozen=True, patch_size=8, {NAME}",
    'read-only': "type='mmlape.TimmViTAdapter', mode='read-only', conv_inplane=4, deform_num_heads=2, "
    f'vit=dict(frozen=True, {NAME})',
}


def publish(src, out):
    return main(['checkpoint', 'publish', str(src), str(out), '--trained-only'])


@pytest.fixture(scope='module', params=VITS)
def trained(request, tmp_path_factory):
    """A run over a frozen ViT whose table was resized, and its published file in a folder of its own."""
    folder = tmp_path_factory.mktemp('trained')
    extra = VIT.format(vit=VITS[request.param], checkpoint=str(folder / 'vit.pth'))
    config = tiny.write_config(folder, tiny.write_data(folder / 'data'), extra)
    key = 'model.backbone.img_size' if request.param == 'plain' else 'model.backbone.vit.img_size'
    vit = build(load_config(config, {key: 48})).backbone.vit
    torch.save({f'vit.{name}': value for name, value in vit.state_dict().items()}, folder / 'vit.pth')
    train(load_config(config), folder / 'run', seed=1)
    (folder / 'out').mkdir()
    assert publish(folder / 'run', folder / 'out/a.safetensors') == 0
    (file,) = (folder / 'out').iterdir()
    return folder, config, file


@pytest.fixture
def beside(trained):
    """The same with the ViT's file beside the published one."""
    folder, _, file = trained
    shutil.copy(folder / 'vit.pth', file.parent)
    yield trained
    (file.parent / 'vit.pth').unlink(missing_ok=True)


def outputs(*named, **options):
    model = mmlape.load(*named, device='cpu', **options)
    image = np.random.default_rng(0).integers(0, 256, (48, 64, 3), np.uint8)
    return model.module.state_dict(), predict_batch(model.module, [model.module.preparation.of_array(image)])[0]


def assert_complete(found, expected):
    assert found[0].keys() == expected[0].keys()
    assert all(torch.equal(value, expected[0][name]) for name, value in found[0].items())
    assert torch.equal(found[1].seg_logits.data, expected[1].seg_logits.data)


def test_the_file_and_that_of_its_vit_are_the_complete_checkpoint(beside):
    folder, config, file = beside
    stored = read_checkpoint(file)
    assert not any('.blocks.' in name for name in stored) and file.stat().st_size < (folder / 'vit.pth').stat().st_size
    assert str(folder) not in str(stored['meta'])
    complete = outputs(folder / 'run')
    assert_complete(outputs(file), complete)
    (file.parent / 'vit.pth').unlink()
    assert_complete(outputs(config, file), complete)  # the config names the ViT's file


def test_a_completed_file_is_pickled_complete(beside):
    """Another process gets what was merged, and opens a plain file itself."""
    _, _, file = beside
    stored = open_file(file)
    again = pickle.loads(pickle.dumps(stored))
    assert again.is_file and again.tensors.keys() == stored.tensors.keys()
    merged = completed(stored, mmlape.load(file, device='cpu').module)
    again = pickle.loads(pickle.dumps(merged))
    assert not again.is_file and again.tensors.keys() == merged.tensors.keys() > stored.tensors.keys()
    assert all(torch.equal(value, merged.tensors[name]) for name, value in again.tensors.items())


@pytest.mark.parametrize('trained', ['plain'], indirect=True)
def test_training_starts_from_it_as_from_the_complete_checkpoint(beside, tmp_path):
    """With images of another size, too, and with the ViT trained."""
    folder, config, file = beside
    best = next((folder / 'run').glob('best_*.pth'))
    changes = {'model.backbone.img_size': 48, 'model.backbone.frozen': False, 'train_cfg.max_iters': 2}
    for name, start in (('a', best), ('b', file)):
        train(load_config(config, dict(changes, load_from=str(start))), tmp_path / name, seed=1)
    assert tiny.difference(tmp_path / 'a/iter_2.pth', tmp_path / 'b/iter_2.pth') == 0


def test_a_frozen_part_that_is_missing_or_another_one_is_refused(trained, tmp_path):
    folder, _, file = trained
    with pytest.raises(
        CheckpointError, match=rf'{file.name}: .*frozen backbone is that of vit\.pth, which is not there'
    ):
        mmlape.load(file, device='cpu')
    other = {name: value + 1e-6 for name, value in read_checkpoint(folder / 'vit.pth').items()}
    torch.save(other, file.with_name('vit.pth'))
    with pytest.raises(CheckpointError, match=f'over another backbone than that of {file.parent}/vit.pth'):
        mmlape.load(file, device='cpu')
    file.with_name('vit.pth').unlink()
    for work in (
        lambda: average([file, file], tmp_path / 'a.pth'),
        lambda: convert(file, tmp_path / 'a.pth', 'mmseg'),
        lambda: converting.publish(file, tmp_path / 'a.safetensors'),
    ):
        with pytest.raises(CheckpointError, match='give the complete checkpoint'):
            work()


def test_what_is_trained_is_not_left_out(trained, tmp_path, capsys):
    folder, _, _ = trained
    stored = read_checkpoint(next((folder / 'run').glob('best_*.pth')))
    torch.save({key: value + 1 for key, value in read_checkpoint(folder / 'vit.pth').items()}, folder / 'other.pth')
    text = stored['meta']['cfg']
    without, address = 'publish it without --trained-only', 'http://127.0.0.1:9/vit.pth'
    changes = [
        ('frozen=True', 'frozen=False', without),
        (str(folder / 'vit.pth'), str(folder / 'other.pth'), without),
        (str(folder / 'vit.pth'), address, 'cannot be downloaded (refused, '),
    ]
    for old, new, reason in changes['read-only' in text :]:
        torch.save(dict(stored, meta=dict(cfg=text.replace(old, new))), tmp_path / 'a.pth')
        assert publish(tmp_path / 'a.pth', tmp_path / 'x.safetensors') == 1
        assert reason in capsys.readouterr().err


def test_a_file_that_names_others_reads_none_outside_its_folder(tmp_path):
    secret, folder = tmp_path / 'secret.pth', tmp_path / 'in'
    folder.mkdir()
    torch.save({'a': torch.ones(1)}, secret)
    names = ['', '.', '/', '..', '../secret.pth', str(secret), f'file://{secret}', 'https://', 'http://[', 'x' * 300]
    hub = [f'hf://o/n/{secret}', 'hf://o/n/../../secret.pth', 'hf://', '\ud800', 'a\0']
    for name in each(names + hub):
        parts = {'backbone': dict(digest='0', init_cfg=dict(checkpoint=name))}
        file = OpenedFile({'meta': {KEY: json.dumps(parts)}}, str(folder / 'a.safetensors'))
        with contextlib.suppress(CheckpointError):
            assert frozen_tensors(file) == {}
    for part in each([dict(digest=1), dict(init_cfg=dict(checkpoint='x', grid='y')), dict(init_cfg={}), dict(more=1)]):
        parts = {'backbone': dict(digest='0', init_cfg=dict(checkpoint='x')) | part}
        with pytest.raises(CheckpointError, match='what it says of its frozen part cannot be read'):
            frozen_parts(OpenedFile({'meta': {KEY: json.dumps(parts)}}))


def test_a_frozen_part_is_of_a_complete_file(beside):
    """A file that names itself, too."""
    _, _, file = beside
    shutil.copy(file, file.parent / 'vit.pth')
    with pytest.raises(CheckpointError, match=r'vit\.pth lacks frozen tensors itself'):
        mmlape.load(file, device='cpu')
