"""``add_dual_patchnorm``: our ViT with the same norms, and what a stem of timm must still do."""

import pytest
import torch
from model_helpers import ARCH, randomise
from timm_helpers import build

import mmlape
from mmlape.errors import ConfigError
from mmlape.models import VisionTransformer as OurViT
from mmlape.models.layers.patch_embed import PATCH_NORMS

TABLE_6 = sorted(set(PATCH_NORMS) - {'none'})
BEFORE = [(name, 'lape') for name in TABLE_6 if PATCH_NORMS[name][2] is None]


@pytest.mark.parametrize(('patch_norm', 'joining'), [*((name, 'default') for name in TABLE_6), *BEFORE])
def test_our_vit_is_the_same(patch_norm, joining):
    """In either order of the two methods, at another size."""
    model = build('any size', reg_tokens=0)
    first = patch_norm < 'no'
    if first:
        mmlape.add_dual_patchnorm(model, patch_norm)
    if joining == 'lape':
        mmlape.add_lape(model)
    if not first:
        mmlape.add_dual_patchnorm(model, patch_norm)
    randomise(model).double()
    tensors = {name: value for name, value in model.state_dict().items() if not name.startswith('head')}
    tensors = {name.replace('patch_embed.norm.', 'patch_embed.norm1.'): value for name, value in tensors.items()}
    ours = OurViT(ARCH, 32, 8, out_type='raw', patch_norm=patch_norm, pe_joining=joining).double().eval()
    ours.load_state_dict(tensors)
    images = torch.randn(2, 3, 32, 32, dtype=torch.float64)
    torch.testing.assert_close(model.forward_features(images), ours(images)[0], atol=1e-12, rtol=0)


@pytest.mark.parametrize('form', ['class token', 'any size', 'norm_pre', 'Eva, rotary too'])
@pytest.mark.parametrize('patch_norm', ['dual', 'learnable-only'])
def test_the_start(patch_norm, form):
    """Without a standardisation the model is the one that it was; with it, brightness and contrast are forgotten."""
    model = build(form)
    images = torch.randn(2, 3, 32, 32)
    expected, same = model(images), dict(atol=1e-5, rtol=1e-5)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    mmlape.add_dual_patchnorm(model, patch_norm)
    after = model.state_dict()
    assert all(torch.equal(after[name], value) for name, value in before.items())
    new = [name for name in after if name not in before]
    assert new == [f'patch_embed.{norm}.{leaf}' for norm in ('norm', 'norm0') for leaf in ('weight', 'bias')]
    assert after['patch_embed.norm0.weight'].shape == (3 * 64,)
    assert all((after[name] == float(name.endswith('weight'))).all() for name in new)
    if patch_norm == 'learnable-only':
        torch.testing.assert_close(model(images), expected, **same)
    else:
        assert not torch.allclose(model(images), expected, **same)
        torch.testing.assert_close(model(3 * images + 5), model(images), atol=1e-3, rtol=1e-3)
        assert model.patch_embed.norm0.eps == model.patch_embed.norm.eps == model.blocks[0].norm1.eps


def test_a_padded_image():
    """timm pads at the right and the bottom, before the norm."""
    model = randomise(mmlape.add_dual_patchnorm(build('any size', dynamic_img_pad=True)))
    images = torch.randn(1, 3, 20, 30)
    padded = torch.nn.functional.pad(images, (0, 2, 0, 4))
    torch.testing.assert_close(model(images), model(padded))


def test_another_size():
    model = randomise(mmlape.add_dual_patchnorm(build()))
    model.set_input_size((16, 24))
    assert model(torch.randn(1, 3, 16, 24)).shape == (1, 5)
    with pytest.raises(ConfigError, match='change the patch size before add_dual_patchnorm'):
        model.set_input_size((16, 24), patch_size=(4, 4))
    model.set_input_size((16, 32), patch_size=8)
