"""`mmlape.resize_pos_embed`: the table of any file on another grid, under the file's own names."""

import pytest
import timm
import torch
from checkpoint_helpers import save
from model_helpers import ARCH, randomise, vit

import mmlape
from mmlape.checkpoint import read_checkpoint, state_dict_of
from mmlape.checkpoint.converting import convert
from mmlape.errors import CheckpointError, ConfigError

SIDE, PATCH = 32, 8
TINY = dict(embed_dim=48, depth=1, num_heads=4)


LAYOUTS = {
    'mmlape': dict(pe_joining='unshared'),
    'classifier': {},
    'timm': {},
    'lape': dict(pe_joining='lape'),
    'transformers-clip': dict(patch_norm='post-posemb', norm_cfg=dict(type='LN', eps=1e-5)),
}


def written(folder, layout: str) -> tuple[str, dict]:
    """A file of a layout, and the arguments of the model that it is of."""
    options = dict(LAYOUTS[layout], arch=ARCH, img_size=SIDE, patch_size=PATCH)
    model = randomise(mmlape.VisionTransformer(**options))
    if layout == 'transformers-clip':
        torch.nn.init.zeros_(model.patch_embed.proj.bias)  # its stem has none
    source, target = save(folder / 'ours.pth', model.state_dict(), 'state_dict'), folder / 'theirs.pth'
    convert(source, target, layout)
    return str(target), options


@pytest.mark.parametrize('layout', LAYOUTS)
def test_a_resized_file_loads_as_the_loader_would_have_resized_it(layout, tmp_path):
    file, options = written(tmp_path, layout)
    content = read_checkpoint(file)
    stored = state_dict_of(content, file)
    for grid in ((3, 7), (6, 6)):
        out = mmlape.resize_pos_embed(content, grid)
        options['img_size'] = tuple(side * PATCH for side in grid)
        ours, loaders = (mmlape.VisionTransformer(**options) for _ in range(2))
        mmlape.load_weights(ours, save(tmp_path / 'resized.pth', out), grid=grid)
        mmlape.load_weights(loaders, file)
        torch.testing.assert_close(ours.state_dict(), loaders.state_dict(), rtol=0, atol=0)
        changed = {key for key in stored if out[key] is not stored[key]}
        assert changed and {stored[key].ndim for key in changed} == {out[key].ndim for key in changed}
        back = mmlape.resize_pos_embed(out, grid, source=grid)
        assert all(torch.equal(back[key], out[key]) for key in out)


def test_wrong_input_is_one_line():
    stored = dict(vit(img_size=SIDE).state_dict())
    rectangle = mmlape.resize_pos_embed(stored, (3, 6))
    for grid, more, message in (
        (0, {}, r'grid=0 is no grid: give \(rows, columns\)'),
        ((4, 4, 4), {}, 'is no grid'),
        (7.0, {}, 'is no grid'),
        ((3, 4), dict(mode='linear'), "unknown mode='linear'; choose one of: bilinear, bicubic"),
        ((3, 4), dict(source='4x4'), "source='4x4' is no grid"),
    ):
        with pytest.raises(ConfigError, match=message):
            mmlape.resize_pos_embed(stored, grid, **more)
    biased = vit(img_size=SIDE, pe_type=['learnable', 'rpe'], pe_joining='lape').state_dict()
    bare = timm.create_model('vit_small_patch16_dinov3', **TINY).state_dict()
    for given, more, message in (
        (dict(rectangle), {}, r'has 19 rows, of 18 \(no square grid\) patches .*: say which by source=\('),
        (dict(stored, pos_embed=torch.zeros(1, 16, 24)), {}, 'beside cls_token or 4x4 patches beside no'),
        (stored, dict(source=(3, 5)), 'pos_embed has 16 or 17 patch rows, which is not the grid 3x5'),
        (biased, {}, r'inside attention \(rpe\), .* mmlape.load_weights resizes all of the file'),
        (bare, {}, 'has no table of an absolute PE to resize'),
        ({'fc.weight': torch.zeros(2, 2)}, {}, 'matches no known layout'),
        ({}, {}, 'no tensors in it'),
    ):
        with pytest.raises(CheckpointError, match=message) as error:
            mmlape.resize_pos_embed(given, (4, 6), **more)
        assert len(str(error.value).splitlines()) == 1
