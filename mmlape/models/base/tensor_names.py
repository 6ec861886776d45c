"""The names of tensors of position encodings and of attention, as the files of a backbone have them."""

import re
from typing import NamedTuple

import torch
from torch import Tensor

from mmlape.checkpoint.key_maps import Tensors, Weights
from mmlape.models.position import NormPlaces


def with_batch_axis(table: Tensor) -> Tensor:
    """Return a table as (1, rows, D); the public 1-D sinusoids have no batch axis."""
    return table[None] if table.ndim == 2 else table


def join_qkv(tensors: Tensors) -> Tensors:
    """Return tensors with each layer's queries, keys and values, ``attn.q``, ``attn.k`` and ``attn.v``, in one map.

    Where keys have no bias, those of queries and values stay apart, as BEiT names them.
    """
    out = {name: value for name, value in tensors.items() if not re.search(r'\.attn\.[qkv]\.', name)}
    for name in (name for name in tensors if '.attn.q.' in name):
        of_each = [name.replace('.attn.q.', f'.attn.{part}.') for part in 'qkv']
        if all(part_name in tensors for part_name in of_each):
            joined = torch.cat([tensors[part_name] for part_name in of_each])
            out[name.replace('.attn.q.', '.attn.qkv.')] = joined
            continue
        for part_name in of_each:
            if part_name in tensors:
                out[re.sub(r'\.bias$', '_bias', part_name)] = tensors[part_name]
    return out


def split_qkv(tensors: Tensors) -> Tensors:
    """Reverse ``join_qkv``."""
    out: Tensors = {}
    for name, value in tensors.items():
        if '.attn.qkv.' in name:
            out |= {name.replace('.attn.qkv.', f'.attn.{part}.'): chunk for part, chunk in zip('qkv', value.chunk(3))}
        else:
            out[re.sub(r'\.attn\.([qv])_bias$', r'.attn.\1.bias', name)] = value
    return out


class TensorNames(NamedTuple):
    """The names of a backbone's tensors, as its files have them."""

    table: str = 'pos_embed'  # of the absolute PE
    layer: str = 'blocks.0.'  # what those of the first layer begin with
    attn: str = 'attn.'  # what those of its attention begin with, inside the layer
    last_norm: str = r'norm\.'  # the last norm, as a regular expression
    merging: str | None = None  # what those of the first step between stages begin with; None without stages

    def tables(self, weights: Weights) -> list[str]:
        """Return the names of the absolute PE's tables."""
        return [name for name in weights.tensors if re.fullmatch(rf'{self.table}\d*', name)]

    def attention(self, weights: Weights) -> dict:
        """Return the tensors of the first attention, by the names that they have there."""
        return weights.below(self.layer + self.attn)

    def layers(self, weights: Weights) -> list[dict]:
        """Return the tensors of each layer, by the names that they have there, in the order of the layers."""
        pattern = re.compile(re.escape(self.layer).replace('0', r'(\d+)'))
        matches = filter(None, map(pattern.match, weights.tensors))
        numbers = {match[0]: tuple(map(int, match.groups())) for match in matches}
        return [weights.below(start) for start in sorted(numbers, key=numbers.__getitem__)]

    def norm_places(self, weights: Weights) -> NormPlaces:
        """Return where a file has norms of the PE, those of biases in attention among them."""
        names = ('pe_norm.', f'{self.attn}pe_norm.')
        layers = tuple(any(name.startswith(names) for name in layer) for layer in self.layers(weights))
        last = weights.has(r'pe_norm\.') if weights.has(self.last_norm) else None
        if self.merging is None:
            return NormPlaces(layers, last)
        merges = len(self.tables(weights)) == 1 and weights.has(re.escape(self.merging))
        merging = bool(weights.below(f'{self.merging}pe_norm.')) if merges else None
        return NormPlaces(layers, last, merging, staged=True)
