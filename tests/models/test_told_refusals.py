"""What constructors and functions of models refuse, each in one line that names the fix.

The calls are in `golden/refusals.txt`, the texts are recorded.
"""

from functools import partial
from pathlib import Path

import pytest
import torch
from lit_helpers import BACKBONE, lit
from model_helpers import ARCH, CEIT_ARCH, DEEP_ARCH, SWIN_ARCH, T2T_ARCH, tiny_detr
from timm.models.eva import Eva
from timm.models.vision_transformer import ParallelScalingBlock
from timm.models.vision_transformer import VisionTransformer as PlainViT
from timm_helpers import ROPE, SHAPE, build, shape_of
from told import assert_told

from mmlape import add_dual_patchnorm, add_lape, get_model, param_groups
from mmlape.errors import ConfigError, MMLaPEError
from mmlape.models import (
    DistilledVisionTransformer,
    SwinTransformer,
    TimmViT,
    TimmViTAdapter,
    VisionTransformer,
    ViTAdapter,
    ViTPyramid,
)
from mmlape.projects import CeiT, CompactTransformer, ExtraAttention, T2TViT

CALLS = (Path(__file__).parents[1] / 'golden' / 'refusals.txt').read_text().splitlines()
ViT = partial(VisionTransformer, arch=DEEP_ARCH, img_size=32, patch_size=8)


def timm_adapter(name='vit_small_patch16_dinov3', mode='read-only', vit=None, **options):
    vit = dict(model_args=dict(embed_dim=48, depth=4, num_heads=4), model_name=name) | (vit or {})
    return TimmViTAdapter(vit, mode, conv_inplane=4, deform_num_heads=4, **options)


NAMES = dict(
    ViT=ViT, encoding=lambda **options: ViT(pe_type=['learnable', options]), BEiT=partial(ViT, pe_type='beit'),
    table=lambda **options: ViT(pe_type=dict(type='learnable', **options)), timm_adapter=timm_adapter, TimmViT=TimmViT,
    Distilled=partial(DistilledVisionTransformer, arch=ARCH, img_size=32, patch_size=8),
    Adapter=partial(ViTAdapter, arch=DEEP_ARCH, img_size=64, conv_inplane=8, deform_num_heads=3),
    Pyramid=partial(ViTPyramid, ARCH, 64), Swin=partial(SwinTransformer, arch=SWIN_ARCH, img_size=32),
    T2T=partial(T2TViT, T2T_ARCH, 48), Ceit=partial(CeiT, CEIT_ARCH, 48), CompactTransformer=CompactTransformer,
    tiny_detr=tiny_detr, ExtraAttention=ExtraAttention, get_model=get_model, add_lape=add_lape, build=build,
    torch=torch, add_dual_patchnorm=add_dual_patchnorm, param_groups=param_groups, PlainViT=PlainViT,
    ParallelScalingBlock=ParallelScalingBlock, Eva=Eva, SHAPE=SHAPE, ROPE=ROPE, ARCH=ARCH,
)  # fmt: skip


def vocabulary(*words):
    Path('vocabulary.txt').write_text('\n'.join(words) + '\n')
    return dict(vocab_file='vocabulary.txt', vocab_size=len(words))


def test_what_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines, names = [], NAMES | dict(lit=partial(lit, tmp_path), vocabulary=vocabulary, BACKBONE=BACKBONE)
    for call in CALLS:
        with pytest.raises(MMLaPEError) as error:
            eval(call, names)
        assert '\n' not in str(error.value), call
        lines.append(f'{call}: {error.value}')
    assert_told('refusals', '\n'.join(lines))


@pytest.mark.parametrize('change', [partial(add_lape, joining='LaPE'), partial(add_dual_patchnorm, patch_norm='none')])
def test_a_model_that_is_refused_stays_as_it_was(change):
    model = build()
    before = shape_of(model)
    with pytest.raises(ConfigError):
        change(model)
    assert shape_of(model) == before
