"""What layers do with the PE: by hand with hooks, its limits, the command, and the hook in a run."""

import json
import math

import numpy as np
import pytest
import tiny
import torch
from checkpoint_helpers import run_file
from model_helpers import ARCH, new_vit, randomise, swin, vit
from PIL import Image

import mmlape
from mmlape.cli import main
from mmlape.models import VisionTransformer
from mmlape.models.base.balance import measure_balance

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


def test_tokens_that_are_the_pe_correlate_completely():
    """And with its negative, not at all otherwise: the limits of the scale."""
    model = vit(pe_joining='mpvg', **POOLED)
    for part in (model.patch_embed.proj.weight, model.patch_embed.proj.bias):
        torch.nn.init.zeros_(part)
    for layer in model.blocks:
        torch.nn.init.zeros_(layer.attn.proj.weight)
        torch.nn.init.zeros_(layer.attn.proj.bias)
        torch.nn.init.zeros_(layer.mlp.fc2.weight)
        torch.nn.init.zeros_(layer.mlp.fc2.bias)
        for sign, expected in ((1, 1.0), (-1, -1.0)):
            with torch.no_grad():
                if layer.pe_norm is not None:
                    layer.pe_norm.weight.copy_(sign * layer.norm1.weight)
                    layer.pe_norm.bias.copy_(sign * layer.norm1.bias)
                    found = measure_balance(model, torch.randn(2, 3, 32, 32))
                    assert found.correlations[1] == pytest.approx(expected, abs=1e-4)


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


def test_models_stand_side_by_side(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pixels = np.random.default_rng(0).integers(0, 255, (40, 40, 3), dtype=np.uint8)
    Image.fromarray(pixels).save('image.png')
    files = {}
    for joining in ('lape', 'mpvg'):
        options = POOLED if joining == 'mpvg' else {}
        model = randomise(VisionTransformer(ARCH, 32, 8, pe_joining=joining, **options))
        run_file(tmp_path / f'{joining}.pth', model)
        files[joining] = measure_balance(model, torch.zeros(1, 3, 32, 32))
    assert main(['visualize-pe', 'lape.pth', 'mpvg.pth', '--out', 'out', '--balance', '--images', 'image.png']) == 0
    printed = capsys.readouterr().out
    assert 'layer 1' in printed and "variance of the last norm's shift" in printed
    assert (tmp_path / 'out/pe_balance.png').stat().st_size > 5000
    written = json.loads((tmp_path / 'out/pe_balance.json').read_text())
    assert list(written) == ['lape', 'mpvg']
    assert {'correlation.0', 'prefix_cosine'} <= set(written['lape'])
    assert not {'correlation.0', 'prefix_cosine'} & set(written['mpvg'])
    assert written['mpvg']['last_beta'] == pytest.approx(files['mpvg'].last_beta)


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
