"""Relative encodings before iRPE, against their equations written out in float64 einsums."""

from functools import partial
from itertools import product

import torch
import torch.nn.functional as F
from each import each
from torch import nn

from mmlape.models import VisionTransformer
from mmlape.models.position.absolute import sincos_1d

ARCH = dict(embed_dims=24, num_layers=2, num_heads=3, feedforward_channels=32)
HEADS, DIMS, GRID, LIMIT = 3, 8, (3, 5), 3  # ratio 1.9 clips at 3
NAMES = ['shaw', 'huang', 'axial-deeplab', 'transformer-xl', 'sasa']


def attention(name, prefix=0):
    """An attention with random tables in float64, and tokens: those of the prefix, then those of a grid."""
    torch.manual_seed(1)
    tokens = dict(with_cls_token=prefix > 0, num_registers=max(0, prefix - 1))
    model = VisionTransformer(ARCH, (12, 20), 4, pe_type=name, out_type='raw', interpolate_mode='bilinear', **tokens)
    attn = model.blocks[1].attn.double()
    for parameter in attn.parameters():
        nn.init.normal_(parameter, std=0.5)
    return attn, torch.randn(2, 15 + prefix, 24, dtype=torch.float64)


def vectors(table, prefix=0):
    """(N, N, d): a table's entry for each pair of tokens.

    The rows of the table are (row offset, column offset); pairs with a prefix token have one more, behind the others.
    """
    side, count = 2 * LIMIT + 1, prefix + 15
    found = torch.empty(count, count, table.shape[-1], dtype=table.dtype)
    for i in range(count):
        for j in range(count):
            row, column = (
                max(-LIMIT, min(LIMIT, a - b)) for a, b in zip(divmod(i - prefix, 5), divmod(j - prefix, 5))
            )
            found[i, j] = table[side**2 if min(i, j) < prefix else (row + LIMIT) * side + column + LIMIT]
    return found


def reference(name, attn, x, prefix=0):
    vectors_of = partial(vectors, prefix=prefix)
    q, k, v = attn.qkv(x).unflatten(-1, (3, HEADS, DIMS)).permute(2, 0, 3, 1, 4)
    logits, extra = torch.einsum('bhid,bhjd->bhij', q, k), None
    if name in ('shaw', 'axial-deeplab'):
        logits = logits + torch.einsum('bhid,ijd->bhij', q, vectors_of(attn.rpe_k.lookup_table_weight[0].mT))
        extra = vectors_of(attn.rpe_v.lookup_table_weight[0])
    if name == 'axial-deeplab':
        logits = logits + torch.einsum('bhjd,ijd->bhij', k, vectors_of(attn.rpe_q.lookup_table_weight[0].mT))
    if name == 'huang':
        p = vectors_of(attn.rpe_table.mT)
        both = torch.einsum('bhijd,bhijd->bhij', q[:, :, :, None] + p, k[:, :, None] + p)
        logits = both - torch.einsum('ijd,ijd->ij', p, p)
    if name == 'transformer-xl':
        wave = sincos_1d(2 * LIMIT + 1, 12).double()
        side = 2 * LIMIT + 1
        waves = torch.cat([torch.cat((wave[n % side], wave[n // side]))[None] for n in range(side**2)])
        waves = torch.cat((waves, waves.new_zeros(1, 24)))  # of a pair with a prefix token
        r = vectors_of(waves @ attn.rpe_proj.weight.T).unflatten(-1, (HEADS, DIMS))
        u, v_bias = attn.rpe_key_bias, attn.rpe_offset_bias
        logits = torch.einsum('bhid,bhjd->bhij', q + u, k) + torch.einsum('bhid,ijhd->bhij', q + v_bias, r)
    if name == 'sasa':
        row = torch.tensor([[i // 5 - j // 5 + 2 for j in range(15)] for i in range(15)])
        column = torch.tensor([[i % 5 - j % 5 + 4 for j in range(15)] for i in range(15)])
        p = torch.cat((attn.rpe_rows[row], attn.rpe_columns[column]), dim=-1)
        p = F.pad(p, (0, 0, prefix, 0, prefix, 0))  # nothing for prefix tokens
        logits = torch.einsum('bhid,bhijd->bhij', q, k[:, :, None] + p)
    weights = (logits / DIMS**0.5).softmax(-1)
    out = torch.einsum('bhij,bhjd->bhid', weights, v)
    if extra is not None:
        out = out + torch.einsum('bhij,ijd->bhid', weights, extra)
    return attn.proj(out.transpose(1, 2).flatten(2))


def test_attention_is_the_equation():
    for prefix, name in each(product([0, 1, 3], NAMES)):
        attn, x = attention(name, prefix)
        torch.testing.assert_close(attn(x, GRID), reference(name, attn, x, prefix), rtol=1e-9, atol=1e-9)
