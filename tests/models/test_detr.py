"""DETR: its encoder with position encodings, its checkpoints, and what mmdetection's parts get."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from golden.recording import uniform
from mmdet.models.layers import SinePositionalEncoding
from mmdet.structures import DetDataSample
from model_helpers import randomise, tiny_detr
from torchvision.models._meta import _COCO_CATEGORIES

from mmlape.backbones import open_model
from mmlape.checkpoint import load_model
from mmlape.checkpoint.converting import convert, inspect, write_tensors
from mmlape.checkpoint.metadata import metadata_of
from mmlape.errors import CheckpointError
from mmlape.models.position import AbsolutePosition, AttentionSlot, kinds
from mmlape.projects.detr.model import EncoderAttention

GOLDEN = Path(__file__).parents[1] / 'golden'
IRPE = dict(type='irpe', ratio=2.0)
CATEGORY_IDS = [number for number, name in enumerate(_COCO_CATEGORIES) if name not in ('__background__', 'N/A')]
SIZES = ((96, 128), (64, 160))


def samples(sizes=SIZES):
    height, width = (max(sides) for sides in zip(*sizes))
    return [
        DetDataSample(metainfo=dict(batch_input_shape=(height, width), img_shape=size, scale_factor=(1, 1)))
        for size in sizes
    ]


def batch(images):
    height, width = (max(image.shape[i] for image in images) for i in (1, 2))
    return torch.stack([F.pad(image, (0, width - image.shape[2], 0, height - image.shape[1])) for image in images])


def states(model, images, sizes=SIZES):
    return model.forward_transformer(model.extract_feat(images), samples(sizes))['hidden_states']


# the public code's files


@pytest.fixture(scope='module')
def golden():
    with np.load(GOLDEN / 'detr.npz') as file:
        return {name: file[name] for name in file.files if name.startswith('complete/')}


@pytest.fixture(scope='module')
def public_file(golden, tmp_path_factory):
    """A file as released: its names, shapes and class head, and what stands beside the weights."""
    path = tmp_path_factory.mktemp('detr') / 'rpe-2.0-product-ctx-1-k.pth'
    shapes = json.loads(str(golden['complete/shapes']))
    torch.save({'model': {name: uniform(name, shape) for name, shape in shapes.items()}, 'epoch': 149}, path)
    return path


@pytest.mark.parametrize('by', ['init_cfg', 'load_model'])
def test_a_public_file_detects_what_the_public_code_does(golden, public_file, by):
    """Two images of different size, through backbone, padding, sinusoids, transformer and heads."""
    options = dict(pe_type=['sine', IRPE], layers=(2, 2))
    if by == 'init_cfg':
        model = tiny_detr(**options, init_cfg=dict(type='Pretrained', checkpoint=str(public_file)))
        model.init_weights()
        report = model.load_report
    else:
        model = tiny_detr(**options)
        report = load_model(model, str(public_file))
    assert not report.dropped and not report.problems
    assert {name.rpartition('.')[2] for name in report.new} == {'num_batches_tracked'}
    assert '92 rows by COCO category id -> 81, by class and for no object' in str(report)
    model = model.double().eval()
    images = batch([uniform('image', (3, *size)) for size in SIZES])
    with torch.no_grad():
        classes, boxes = model.bbox_head(states(model, images))
    # the sinusoids are computed in float32
    logits = torch.from_numpy(golden['complete/logits'])[..., [*CATEGORY_IDS, 91]]
    torch.testing.assert_close(classes[-1], logits, atol=1e-5, rtol=0)
    torch.testing.assert_close(boxes[-1], torch.from_numpy(golden['complete/boxes']), atol=1e-5, rtol=0)


def test_inspect_and_convert_know_public_files(public_file, tmp_path):
    found = inspect(public_file)
    assert found['layout'] == 'original DETR' and (found['width'], found['layers']) == (16, 2)
    assert found['class head'] == '92 rows by COCO category id' and 'self_attn.rpe_k' in found['first layer']
    assert 'no model of mmlape.DETR that has a name' in found['to load it'] and 'heads and necks' not in found['notes']
    with pytest.raises(CheckpointError, match='only position encodings of backbones are drawn'):
        open_model(str(public_file))
    convert(public_file, tmp_path / 'ours.pth', 'mmlape')
    assert inspect(tmp_path / 'ours.pth')['class head'] == '80 classes, no object'
    model = tiny_detr(pe_type=['sine', IRPE], layers=(2, 2))
    assert not load_model(model, str(tmp_path / 'ours.pth')).resized


def test_own_files_keep_what_no_key_tells(tmp_path):
    """A file of LaPE is not taken for one without, and one without the sinusoids not for one with them."""
    model = randomise(tiny_detr(pe_type=['sine', IRPE], pe_joining='lape'))
    file = tmp_path / 'a.pth'
    write_tensors(model.state_dict(), file, 'state_dict', metadata=metadata_of(model))
    other = tiny_detr(pe_type=['sine', IRPE], pe_joining='lape')
    load_model(other, str(file))
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in other.state_dict().items())
    assert inspect(file)['pe_joining'] == 'lape'
    with pytest.raises(CheckpointError, match="with LaPE, but the model has pe_joining='default'"):
        load_model(tiny_detr(pe_type=['sine', IRPE]), str(file))
    with pytest.raises(CheckpointError, match='pe_joining'):
        load_model(tiny_detr(pe_type=['sine', IRPE], pe_joining='lape-shared'), str(file))


@pytest.mark.parametrize('kind', ['rope-mixed', 'transformer-xl', 'huang', 'rpe'])
def test_tables_of_a_file_are_not_those_of_the_constructor(tmp_path, kind):
    """Some start with values of their own, which initialising keeps, and loading does not."""
    options = dict(pe_type=['sine', kind], grid=(3, 4))
    source = randomise(tiny_detr(**options))
    path = str(tmp_path / 'a.pth')
    write_tensors(source.state_dict(), path, 'state_dict', metadata=metadata_of(source))
    tables = [name for name, _ in source.encoder.named_parameters() if '.self_attn.' in name and '.attn.' not in name]
    assert tables
    for init in (dict(type='Pretrained', checkpoint=path), None):
        model = tiny_detr(**options, init_cfg=init)
        before = {name: value.clone() for name, value in model.encoder.named_parameters()}
        model.init_weights()
        if init is None:  # what was zero has Xavier's values now
            assert all(torch.equal(model.encoder.get_parameter(n), before[n]) for n in tables if before[n].any())
            load_model(model, path)
        for name, value in source.state_dict().items():
            assert torch.equal(value, model.state_dict()[name]), name


# the encoder


def reference_memory(model, x, pe, padding):
    """Two layers of LaPE's chain with explicit attention, in float64; iRPE's term at the clipped, rounded offsets."""
    p = {name: value.detach() for name, value in model.encoder.state_dict().items()}
    (rows, columns), heads, dims = (5, 7), 2, x.shape[-1]
    cells = torch.cartesian_prod(torch.arange(rows), torch.arange(columns))
    offset = cells[:, None] - cells
    step = offset.sign() * torch.tensor([0, 1, 2, 2, 3, 3, 3])[offset.abs()]  # g at ratio 2
    bucket = (step[..., 0] + 4) * 9 + step[..., 1] + 4
    for layer in range(2):
        b = f'layers.{layer}.'
        norm = lambda x, name, b=b: F.layer_norm(x, (dims,), p[f'{b}{name}.weight'], p[f'{b}{name}.bias'])  # noqa: E731
        pe = norm(pe, 'pe_norm')
        weight, bias = (p[f'{b}self_attn.attn.in_proj_{leaf}'].chunk(3) for leaf in ('weight', 'bias'))
        q, k, v = (
            F.linear(source, weight[i], bias[i]).unflatten(-1, (heads, -1)).transpose(1, 2)
            for i, source in enumerate((x + pe, x + pe, x))
        )
        table = p[f'{b}self_attn.rpe_k.lookup_table_weight'][0].T  # (buckets, d)
        logits = (q @ k.mT + torch.einsum('bhid,ijd->bhij', q, table[bucket])) * (dims // heads) ** -0.5
        logits = logits.masked_fill(padding[:, None, None], -torch.inf)
        out = (logits.softmax(-1) @ v).transpose(1, 2).flatten(2)
        x = norm(
            x + F.linear(out, p[f'{b}self_attn.attn.out_proj.weight'], p[f'{b}self_attn.attn.out_proj.bias']),
            'norms.0',
        )
        hidden = F.linear(x, p[f'{b}ffn.layers.0.0.weight'], p[f'{b}ffn.layers.0.0.bias']).relu()
        x = norm(x + F.linear(hidden, p[f'{b}ffn.layers.1.weight'], p[f'{b}ffn.layers.1.bias']), 'norms.1')
    return x


@pytest.fixture
def tokens():
    generator = torch.Generator().manual_seed(1)
    x, pe = (torch.randn(2, 35, 16, generator=generator, dtype=torch.float64) for _ in range(2))
    padding = torch.zeros(2, 5, 7, dtype=torch.bool)
    padding[0, :, 4:] = padding[1, 3:] = True
    return x, pe, padding.flatten(1)


def test_lape_norms_the_pe_in_every_layer(tokens):
    model = randomise(tiny_detr(pe_type=['sine', IRPE], pe_joining='lape')).double()
    memory = model.encoder(*tokens, (5, 7))
    torch.testing.assert_close(memory, reference_memory(model, *tokens), atol=1e-12, rtol=0)


@pytest.mark.parametrize('kind', ['rpe', 'shaw', 'huang', 'transformer-xl', 'sasa', 'rope', 'rope-mixed', 'alibi2d'])
def test_padding_hides_with_every_kind(kind, tokens):
    """What stands in the padding changes no token of the image, on a grid that is not that of the tables."""
    model = randomise(tiny_detr(pe_type=['sine', kind], pe_joining='lape')).double()
    x, pe, padding = tokens
    other = torch.where(padding[..., None], torch.randn_like(x), x)
    memories = [model.encoder(tensor, pe, padding, (5, 7))[~padding] for tensor in (x, other)]
    torch.testing.assert_close(*memories, atol=1e-12, rtol=0)
    without = model.encoder(x, pe, None, (5, 7))[~padding]
    assert (memories[0] - without).abs().max() > 1e-3


def test_with_cp_changes_no_gradient(tokens):
    model = randomise(tiny_detr(pe_type=['sine', IRPE], pe_joining='lape')).double().train()
    found = []
    for with_cp in (False, True):
        model.encoder.with_cp = with_cp
        model.zero_grad()
        model.encoder(*tokens, (5, 7)).square().sum().backward()
        found.append([parameter.grad for parameter in model.encoder.parameters()])
    torch.testing.assert_close(*found)


@pytest.mark.parametrize('joining', ['default', 'lape'])
@pytest.mark.parametrize('dtype', [torch.float64, torch.bfloat16])
def test_the_sine_has_the_dtype_of_the_model(joining, dtype):
    """It is computed in float32; a norm of the PE takes no other dtype than its own."""
    model, image = randomise(tiny_detr(pe_joining=joining)), batch([torch.randn(3, *size) for size in SIZES])
    expected = states(model, image)
    found = states(model.to(dtype), image.to(dtype))
    assert found.dtype == dtype
    torch.testing.assert_close(found.float(), expected, atol=1e-4 if dtype == torch.float64 else 0.3, rtol=0)


@pytest.mark.parametrize('joining', ['default', 'lape', 'lape-shared'])
def test_the_decoders_keys_get_the_sine_as_it_is(joining):
    model, seen = randomise(tiny_detr(pe_joining=joining)), []
    cross = model.decoder.layers[0].cross_attn.attn
    cross.register_forward_pre_hook(lambda module, args, kwargs: seen.append(kwargs), with_kwargs=True)
    images = batch([torch.randn(3, *size) for size in SIZES])
    states(model, images)
    inputs = model.pre_transformer(model.extract_feat(images), samples())[0]
    memory, mask = model.forward_encoder(**inputs)['memory'], inputs['feat_mask'].unflatten(1, inputs['hw'])
    pe = SinePositionalEncoding(8, normalize=True)(mask).flatten(2).mT
    torch.testing.assert_close(seen[0]['key'].transpose(0, 1), memory + pe)
    torch.testing.assert_close(seen[0]['value'].transpose(0, 1), memory)


def test_dropout_of_attention_is_of_its_weights_and_of_its_output():
    """The weights' is that of our attention: test_position.py."""
    attn = EncoderAttention(16, 2, (), AttentionSlot(0, (4, 10)), dropout=0.4, batch_first=True)
    assert attn.attn_drop_rate == attn.dropout_layer.p == 0.4
    x = torch.randn(8, 40, 16)
    assert abs((attn(x, x, None, (4, 10)) == x).double().mean() - 0.4) < 0.05


def test_without_irpe_and_with_sine_it_is_mmdetections():
    attn = dict(embed_dims=16, num_heads=2, dropout=0.0)
    layer = dict(self_attn_cfg=attn, ffn_cfg=dict(embed_dims=16, feedforward_channels=24))
    encoder = dict(num_layers=2, layer_cfg=layer)
    plain = tiny_detr(type='mmdet.DETR', pe_type=None, pe_joining=None, encoder=encoder)
    ours = tiny_detr()
    ours.load_state_dict(randomise(plain).state_dict(), strict=True)
    images = batch([torch.randn(3, *size) for size in SIZES])
    torch.testing.assert_close(states(ours.eval(), images), states(plain, images), atol=2e-5, rtol=0)


def test_without_sine_no_position_reaches_encoder_or_decoder():
    """Also with as many queries as tokens, where mmcv would take the queries' positions for the keys'."""
    model = randomise(tiny_detr(pe_type='none', queries=3 * 5))
    seen = []
    for cross in (layer.cross_attn.attn for layer in model.decoder.layers):
        cross.register_forward_pre_hook(lambda module, args, kwargs: seen.append(kwargs), with_kwargs=True)
    images = batch([torch.randn(3, *size) for size in SIZES])
    states(model, images)
    inputs = model.pre_transformer(model.extract_feat(images), samples())[0]
    assert inputs['feat_pos'] is None
    memory = model.forward_encoder(**inputs)['memory']
    assert torch.equal(seen[0]['key'], memory.transpose(0, 1))
    order = torch.randperm(15)
    x = torch.randn(1, 15, 16)
    torch.testing.assert_close(
        model.encoder(x, None, None, (3, 5))[:, order], model.encoder(x[:, order], None, None, (3, 5))
    )


def test_sine_is_mmdetections_without_padding():
    kind = next(kind for kind in kinds(AbsolutePosition) if kind.name == 'sine')
    theirs = SinePositionalEncoding(8, normalize=True)(torch.zeros(1, 5, 7)).flatten(2).mT
    table = kind.table((5, 7), 16, 2)
    torch.testing.assert_close(table[:, 2:].float(), theirs, atol=1e-5, rtol=0)
    assert not table[:, :2].any()


# initial values, and what is refused


def test_tables_of_one_grid_are_made_for_a_map_of_800_by_1333():
    shapes = {name: value.shape for name, value in tiny_detr(pe_type=['sine', 'sasa']).state_dict().items()}
    assert shapes['encoder.layers.0.self_attn.rpe_rows'] == (2 * 25 - 1, 4)
    assert shapes['encoder.layers.0.self_attn.rpe_columns'] == (2 * 42 - 1, 4)


def test_tables_get_xaviers_values_where_they_start_at_zero():
    """As in the public code; frequencies of rotary keep theirs."""
    model = tiny_detr(pe_type=['sine', IRPE, 'rope-mixed'])
    attention = model.encoder.layers[0].self_attn
    freqs, bound = attention.freqs.detach().clone(), (6 / (8 * 81 + 81)) ** 0.5
    model.init_weights()
    table = attention.rpe_k.lookup_table_weight
    assert table.std() > 0.4 * bound and table.abs().max() <= bound
    assert torch.equal(attention.freqs, freqs)


def test_the_map_into_the_transformer_starts_with_torchs_values():
    """As in the public code; not with Xavier's, which mmdetection has."""
    model = tiny_detr()
    model.init_weights()
    bound, conv = 512**-0.5, model.neck.convs[0].conv
    assert float(conv.weight.std()) == pytest.approx(bound / 3**0.5, rel=0.02) and conv.weight.abs().max() <= bound
    assert 0.1 * bound < conv.bias.abs().mean() and conv.bias.abs().max() <= bound
