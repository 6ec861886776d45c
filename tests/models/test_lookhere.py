"""LookHere: its views by angles, its slopes written out, and what heads of other numbers get."""

import math

import pytest
import torch
from golden_models import load

from mmlape.models import VisionTransformer
from mmlape.models.layers.attention import MultiheadAttention
from mmlape.models.position import AttentionSlot, resolve_position

# degrees from the right, counter-clockwise: the middle of each view, and what it spans
MIDDLES = {
    'halves': ([90, 270, 180, 0], 180),
    'corners': ([135, 45, 225, 315], 90),
    'triangles': ([90, 270, 180, 0], 90),
    'eighths': ([112.5, 247.5, 157.5, 22.5, 67.5, 292.5, 202.5, 337.5], 45),
}


def vit(num_heads, depth=2, **options):
    arch = dict(embed_dims=4 * num_heads, num_layers=depth, num_heads=num_heads, feedforward_channels=8)
    return VisionTransformer(arch, (12, 20), 4, **{'pe_type': 'lookhere', **options})


def sees(middle, span, query, key):
    up, right = query[0] - key[0], key[1] - query[1]
    apart = (math.degrees(math.atan2(up, right)) - middle + 180) % 360 - 180
    return query == key or abs(apart) <= span / 2 + 1e-6


@pytest.mark.parametrize('grid', [(3, 5), (6, 4), (1, 3)], ids=str)
@pytest.mark.parametrize('view', MIDDLES)
def test_directed_heads_are_written_out(view, grid):
    """Of 12 heads, 8: linear in the distance, halved after each round, and slopes that fall from layer to layer."""
    model = vit(12, depth=3, pe_type=dict(type='lookhere', view=view, slope=2.0, layer_slopes=(1.5, 0.5)))
    cells = [divmod(cell, grid[1]) for cell in range(grid[0] * grid[1])]
    middles, span = MIDDLES[view]
    for factor, layer in zip((3.0, 2.0, 1.0), model.blocks):
        bias = layer.attn.encodings[0].bias(layer.attn, grid)
        for head in range(12):
            slope = 2 ** -(1 + head // len(middles)) if head < 8 else 4 ** -(head - 7)
            for i, query in enumerate(cells):
                for j, key in enumerate(cells):
                    seen = head >= 8 or sees(middles[head % len(middles)], span, query, key)
                    expected = -factor * slope * math.dist(query, key) if seen else -1e4
                    assert bias[head, i, j].item() == pytest.approx(expected, rel=1e-6)


def test_heads_have_the_public_codes_biases():
    """What is hidden, and the slopes, which are in bfloat16 there."""
    recorded = {
        tuple(name.split('/')[1:]): values for name, values in load('lookhere').items() if name.startswith('bias/')
    }
    assert len(recorded) == 30
    for (view, heads, grid), values in recorded.items():
        rows, columns = map(int, grid.split('x'))
        arch = dict(embed_dims=4 * int(heads), num_layers=len(values), num_heads=int(heads), feedforward_channels=8)
        model = VisionTransformer(arch, (4 * rows, 4 * columns), 4, pe_type=dict(type='lookhere', view=view))
        found = torch.stack([block.attn.encodings[0].bias(block.attn, (rows, columns)) for block in model.blocks])
        found = found.masked_fill(found <= -1e4, -torch.inf)
        torch.testing.assert_close(found, torch.from_numpy(values).float(), atol=0.01, rtol=0.005)


@pytest.mark.parametrize(('heads', 'directed'), [(1, 1), (2, 2), (3, 2), (4, 3), (6, 4), (8, 4), (12, 8), (16, 8)])
def test_heads_with_a_direction(heads, directed):
    """Layers of few heads take turns; heads that see everything have the four slopes in equal shares."""
    model = vit(heads, depth=4)
    found = [layer.attn.encodings[0] for layer in model.blocks]
    halves = ['up', 'down', 'left', 'right']
    names = dict(zip(resolve_position('lookhere', 'default', 'layernorm').build_inside()[0].directions, halves))
    turns = [names[direction] for layer in found for direction in layer.turned]
    assert turns == (halves * directed)[: 4 * directed]
    free = [slope / 1.5 for slope in found[0].slopes[directed:]]
    assert free == [4.0 ** -(1 + i * min(len(free), 4) // len(free)) for i in range(len(free))]


def test_several_views_in_turn():
    both = vit(12, pe_type=dict(type='lookhere', view=['corners', 'triangles'])).blocks[0].attn
    alone = [vit(12, pe_type=dict(type='lookhere', view=view)).blocks[0].attn for view in ('corners', 'triangles')]
    bias = both.encodings[0].bias(both, (4, 4))
    for part, attn in zip(bias[:8].split(4), alone):
        assert torch.equal(part, attn.encodings[0].bias(attn, (4, 4))[:4])


def test_prefix_tokens_see_and_are_seen():
    attn = vit(3, num_registers=2).blocks[1].attn
    q = torch.zeros(1, 3, 3 + 6, 4)
    found = attn.encodings[0].logits(attn, q, q, (2, 3))[0]
    assert not found[:, :3].any() and not found[:, :, :3].any()
    assert torch.equal(found[:, 3:, 3:], attn.encodings[0].bias(attn, (2, 3)))
    drawn = attn.encodings[0].drawn(attn, (2, 3))
    torch.testing.assert_close(drawn, found[:, 3:, 3:].exp().sum(0) / 3)
    assert drawn.max() == 1 and (drawn.diagonal() == 1).all()


def test_a_query_in_padding_that_sees_only_padding_is_finite():
    encodings = resolve_position('lookhere', 'default', 'layernorm').build_inside()
    attn = MultiheadAttention(8, 2, encodings=encodings, slot=AttentionSlot(0, (3, 3)))
    q = torch.randn(1, 2, 9, 4)
    padding = torch.arange(9) >= 6  # the last row, below which nothing is
    logits = (q @ q.mT + encodings[0].logits(attn, q, q, (3, 3))).masked_fill(padding, -torch.inf)
    assert logits.softmax(-1).isfinite().all()
