"""What layers do with the PE: by hand with hooks, other families, and the hook in a run."""

import json
import math

import numpy as np
import pytest
import tiny
import torch
from model_helpers import new_vit, swin, vit

import mmlape
from mmlape.projects.pe_figures.balance import measure_balance

POOLED = dict(with_cls_token=False, out_type='avg_featmap')
CASES = [
    dict(pe_joining='lape', out_type='cls_token'),
    dict(pe_joining='pvg', **POOLED),
    dict(pe_joining='mpvg', **POOLED),
    dict(pe_joining='shared'),
    dict(),
]


def by_hand(model, image):
    """Correlations with NumPy from what hooks see of attention's input and the norms, for one image."""
    seen, normed, last = [], [], []
    for layer in model.blocks:
        layer.attn.register_forward_pre_hook(lambda module, args: seen.append(args[0][0]))
        layer.norm1.register_forward_hook(lambda module, args, out: normed.append(out[0]))
    model.norm.register_forward_pre_hook(lambda module, args: last.append(args[0][0]))
    model.out_type = 'raw'
    out = model(image)[0][0]
    joined = [(a - b).detach().numpy() for a, b in zip(seen, normed, strict=True)]
    tokens = [one.detach().numpy() for one in normed]
    correlations = [
        np.corrcoef(a.ravel(), b.ravel())[0, 1] if np.abs(b).max() > 1e-6 else math.nan for a, b in zip(tokens, joined)
    ]
    before, after = last[0].detach().numpy(), out.detach().numpy()
    lengths = np.linalg.norm(before, axis=1) * np.linalg.norm(after, axis=1)
    return correlations, (before * after).sum(1) / lengths


@pytest.mark.parametrize('options', [case for case in CASES if case.get('pe_joining') != 'shared'])
def test_numbers_are_those_of_numpy(options):
    model = vit(**options)
    image = torch.randn(1, 3, 32, 32)
    found = measure_balance(model, image)
    correlations, cosines = by_hand(model, image)
    np.testing.assert_allclose(found.correlations, correlations, atol=1e-5)
    assert found.last_cosine == pytest.approx(cosines[model.num_prefix :].mean(), abs=1e-5)
    if model.num_prefix:
        assert found.prefix_cosine == pytest.approx(cosines[0], abs=1e-5)
    else:
        assert math.isnan(found.prefix_cosine)
    assert found.last_beta == pytest.approx(model.norm.bias.detach().numpy().var(), abs=1e-6)
    assert all(math.isfinite(value) for value in found.scalars().values())


@pytest.mark.parametrize('options', CASES)
def test_a_measurement_leaves_the_model_as_it_was(options):
    model = new_vit(**options, drop_path_rate=0.5).train()
    state = {name: value.clone() for name, value in model.state_dict().items()}
    modes = [module.training for module in model.modules()]
    random = torch.get_rng_state()
    image = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    first, second = measure_balance(model, image), measure_balance(model, image)
    np.testing.assert_equal(first, second)
    assert torch.equal(torch.get_rng_state(), random)
    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert not {'combine', 'finish'} & set(vars(model.joining)) and not model.norm._forward_hooks


def test_other_families():
    found = measure_balance(swin(pe_type='learnable', pe_joining='mpvg'), torch.randn(2, 3, 32, 32))
    assert len(found.correlations) == 4 and all(math.isfinite(value) for value in found.correlations)
    assert math.isfinite(found.last_cosine)
    ours = vit(pe_joining='mpvg', **POOLED)
    theirs = mmlape.models.TimmViT(
        'vit_tiny_patch16_224',
        img_size=32,
        patch_size=8,
        with_prefix=False,
        pe_joining='mpvg',
        model_args=dict(embed_dim=24, depth=2, num_heads=3, mlp_ratio=2),
    ).eval()
    theirs.vit.load_state_dict(ours.state_dict())
    image = torch.randn(2, 3, 32, 32)
    mine, other = measure_balance(ours, image), measure_balance(theirs, image)
    np.testing.assert_allclose(np.array(other.correlations), mine.correlations, atol=1e-5)
    np.testing.assert_allclose(other[1:], mine[1:], atol=1e-5)
    plain = mmlape.models.TimmViT('vit_tiny_patch16_224', img_size=32, model_args=dict(depth=1))
    found = measure_balance(plain, torch.randn(1, 3, 32, 32))
    assert np.isnan(found.correlations).all() and len(found.correlations) == 1 and math.isfinite(found.last_cosine)


def test_a_run_records_it_and_is_the_same_run(tmp_path):
    """Two runs, one with the option: the same weights to the bit, and numbers at the iterations asked for."""
    config = tiny.write_config(tmp_path, tiny.write_data(tmp_path / 'data'))
    tiny.train(config, tmp_path / 'plain', '--seed', 1)
    tiny.train(config, tmp_path / 'logged', '--seed', 1, '--log-pe-balance', 3)
    last = 'iter_6.pth'
    assert tiny.difference(tmp_path / 'plain' / last, tmp_path / 'logged' / last) == 0
    (file,) = (tmp_path / 'logged').rglob('vis_data/scalars.json')
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    logged = {row['step']: row for row in rows if 'pe_balance/last_beta' in row}
    assert list(logged) == [1, 4]
    assert {'pe_balance/correlation.0', 'pe_balance/correlation.1', 'pe_balance/last_cosine'} <= set(logged[1])
