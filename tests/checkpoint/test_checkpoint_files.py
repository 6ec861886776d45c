"""Checkpoint files: recognised by content, held to their size, and downloaded where an address is named."""

import hashlib
import io
import tracemalloc
import zipfile

import numpy as np
import pytest
import torch
from checkpoint_helpers import served
from model_helpers import vit
from safetensors.torch import save_file

from mmlape.checkpoint import load_backbone, opening, read_checkpoint, state_dict_of
from mmlape.checkpoint.converting import inspect
from mmlape.checkpoint.key_maps import rename_keys
from mmlape.checkpoint.opening import open_file
from mmlape.errors import CheckpointError


def assert_same(model, tensors):
    for name, value in model.state_dict().items():
        assert torch.equal(value, tensors[name]), name


# ---------------------------------------------------------------- by content


def test_whose_tensors_are_taken_and_under_which_names():
    def of(**content):
        return {name: int(value) for name, value in state_dict_of(content, '').items()}

    inner, outer = ({'module.a': torch.tensor(n), 'module.b': torch.tensor(n)} for n in (1, 2))
    assert of(model=outer, state_dict=inner) == of(state_dict=inner, model=outer) == {'a': 1, 'b': 1}
    assert of(state_dict=inner | {'c': torch.tensor(3)}) == {'module.a': 1, 'module.b': 1, 'c': 3}, 'a part of it'
    assert of(state_dict=dict(model=outer)) == {'a': 2, 'b': 2}
    assert rename_keys({'a.x': 1, 'b.x': 2, 'd': 3}, [('a', 'b'), ('b', 'c')]) == {'b.x': 1, 'c.x': 2, 'd': 3}


def test_other_kinds_by_content(tmp_path):
    tensors = vit().state_dict()
    save_file(tensors, tmp_path / 'a.bin')
    np.savez(tmp_path / 'a.npz', **{name: value.numpy() for name, value in tensors.items()})
    (tmp_path / 'a.npz').rename(tmp_path / 'b.bin')
    torch.save(tensors, tmp_path / 'd.bin', _use_new_zipfile_serialization=False)  # as PyTorch before 1.6
    for name in ('a.bin', 'b.bin', 'd.bin'):
        load_backbone(model := vit(), open_file(tmp_path / name, mmap=True))
        assert_same(model, tensors)
    with zipfile.ZipFile(tmp_path / 'c.pth', 'w') as archive:
        archive.writestr('photo.jpg', b'')
    with pytest.raises(CheckpointError, match=r'c\.pth: an archive without tensors, it holds photo\.jpg'):
        read_checkpoint(tmp_path / 'c.pth')


def test_bfloat16_of_jax(tmp_path):
    """`np.save` writes bfloat16 as two bytes without a type."""
    import ml_dtypes

    source = vit().bfloat16()
    arrays = {n: v.float().numpy().astype(ml_dtypes.bfloat16) for n, v in source.state_dict().items()}
    np.savez(tmp_path / 'a.npz', scalar=ml_dtypes.bfloat16(1.5), **arrays)
    content = read_checkpoint(tmp_path / 'a.npz')
    assert content.pop('scalar') == 1.5
    assert all(value.dtype is torch.bfloat16 for value in content.values())
    np.savez(tmp_path / 'b.npz', **arrays)
    load_backbone(model := vit(), str(tmp_path / 'b.npz'))
    assert_same(model, {name: value.float() for name, value in source.state_dict().items()})
    load_backbone(vit(img_size=48), str(tmp_path / 'b.npz'))


# ---------------------------------------------------------------- against their size


def bomb(path, name, values=2**26):
    """A deflated member of many zeros, as a .npy array or a record of torch's."""
    data = io.BytesIO()
    np.save(data, np.zeros(values, np.uint8))
    with zipfile.ZipFile(path, 'w', zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, data.getvalue())
        archive.writestr('more.npy' if name.endswith('.npy') else 'a/data/1', data.getvalue())


@pytest.mark.parametrize('name', ['a.npy', 'a/data.pkl'])
def test_an_archive_that_unpacks_to_far_more_is_refused_unread(tmp_path, name, monkeypatch):
    bomb(tmp_path / 'bomb', name)
    assert (tmp_path / 'bomb').stat().st_size < 200_000
    tracemalloc.start()
    with pytest.raises(CheckpointError, match=r'bomb: refused, its [\d,]+ bytes unpack to 134,\d+,\d+, more than 20'):
        read_checkpoint(tmp_path / 'bomb')
    assert tracemalloc.get_traced_memory()[1] < 2**20
    tracemalloc.stop()
    if name == 'a.npy':
        monkeypatch.setattr(opening, '_trusted', True)
        assert len(read_checkpoint(tmp_path / 'bomb')['a']) == 2**26


def test_compressed_weights_pass(tmp_path):
    """Also all zeros, up to 64 MiB."""
    tensors = {name: value.numpy() for name, value in vit().state_dict().items()}
    np.savez_compressed(tmp_path / 'a.npz', **tensors)
    np.savez_compressed(tmp_path / 'b.npz', zeros=np.zeros(2**23, np.float32))
    assert set(read_checkpoint(tmp_path / 'a.npz')) == set(tensors)
    assert not read_checkpoint(tmp_path / 'b.npz')['zeros'].any()


# ---------------------------------------------------------------- addresses


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A web server of the folder ``web`` on this machine; its address and the requests that it had."""
    monkeypatch.setattr(torch.hub, '_hub_dir', str(tmp_path / 'hub'))
    for name in ('http_proxy', 'HTTP_PROXY', 'all_proxy', 'ALL_PROXY'):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / 'web').mkdir()
    with served(tmp_path / 'web') as served_at:
        yield served_at


def test_an_address_is_downloaded_once(tmp_path, server):
    address, requests = server
    tensors = vit().state_dict()
    torch.save(tensors, tmp_path / 'web' / 'a.pth')
    digest = hashlib.sha256((tmp_path / 'web' / 'a.pth').read_bytes()).hexdigest()
    (tmp_path / 'web' / 'a.pth').rename(tmp_path / 'web' / f'tiny-{digest[:8]}.pth')
    url = f'{address}/tiny-{digest[:8]}.pth'
    for _ in range(2):
        model = vit(init_cfg=dict(type='Pretrained', checkpoint=url))
        model.init_weights()
        assert_same(model, tensors)
    assert len(requests) == 1
    assert (tmp_path / 'hub' / 'checkpoints' / f'tiny-{digest[:8]}.pth').is_file()
    assert inspect(url)['sha256'] == digest


def test_files_of_one_name_do_not_meet_in_the_cache(tmp_path, server):
    for number in (1, 2):
        (tmp_path / 'web' / str(number)).mkdir()
        save_file({'x': torch.tensor([number])}, tmp_path / 'web' / str(number) / 'model.safetensors')
    for number in (1, 2):
        assert read_checkpoint(f'{server[0]}/{number}/model.safetensors')['x'] == number


def test_a_download_with_another_hash_is_refused(tmp_path, server):
    torch.save(vit().state_dict(), tmp_path / 'web' / 'tiny-0123abcd.pth')
    with pytest.raises(CheckpointError, match=r'tiny-0123abcd\.pth: cannot be downloaded \(invalid hash value'):
        read_checkpoint(f'{server[0]}/tiny-0123abcd.pth')
    assert not [file for file in (tmp_path / 'hub').rglob('tiny*') if file.is_file()]
