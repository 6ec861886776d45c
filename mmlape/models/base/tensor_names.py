"""What the tensors of a file tell of its position encodings: kinds, grid, joining and norm."""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from torch import Tensor

from mmlape.checkpoint.key_maps import Weights
from mmlape.models.grid import Grid, square_grid
from mmlape.models.position import (
    AbsolutePosition,
    AttentionPosition,
    LayerPosition,
    NormPlaces,
    joinings_of,
    kinds,
    norms_of,
)

HEADS_ASSUMED = 'num_heads leaves no trace in a file: the usual width of a head is assumed, set the true number'


def usual_heads(dims: int, channels: int) -> int:
    """Return the largest number of heads that divides a width into at least so many channels each, or 1."""
    return max(heads for heads in range(1, max(1, dims // channels) + 1) if dims % heads == 0)


def with_batch_axis(table: Tensor) -> Tensor:
    """Return a table as (1, rows, D); the public 1-D sinusoids have no batch axis."""
    return table[None] if table.ndim == 2 else table


class Description(NamedTuple):
    """What a file tells of its model."""

    rows: dict[str, Any]  # printable values by name
    config: dict[str, Any]  # arguments of the model, with what is usual where the file does not tell
    notes: list[str]  # what the file does not tell


class InferredPosition(NamedTuple):
    """What a file tells of its position encodings."""

    pe_type: str | dict | list[str | dict]  # as the model takes it; of several that fit, the first
    grid: Grid | None  # of the tables; None without tables, or where they are of no square
    needs_grid: bool  # whether the user has to give the grid
    ambiguous: Sequence[str] = ()  # in words, what the encodings inside attention can be, where keys do not tell

    def img_size(self, patch_size: int, default: int = 224) -> dict:
        """Return the image size that the tables are made for, where it is not the default."""
        rows, columns = (side * patch_size for side in self.grid or (default // patch_size,) * 2)
        return {} if rows == columns == default else {'img_size': rows if rows == columns else (rows, columns)}


def _below(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors whose names begin with ``prefix``, without it."""
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


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

    def infer_joinings(self, weights: Weights) -> list[str]:
        """Return the recorded joining, or those that leave such names in a file."""
        if 'pe_joining' in weights.recorded:
            return [str(weights.recorded['pe_joining'])]
        return joinings_of(self.norm_places(weights), f'{self.table}0' in weights.tensors)

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

    def infer_norms(self, weights: Weights) -> list[str]:
        """Return the recorded norm of an absolute PE, or those that leave such names in a file."""
        if 'pe_type' in weights.recorded:
            return [str(weights.recorded['pe_norm'])] if 'pe_norm' in weights.recorded else []
        found = [found for layer in self.layers(weights) if (found := _below('pe_norm.', layer))]
        return norms_of(found[0]) if found else []

    def infer_heads(self, weights: Weights) -> int | None:
        """Return the recorded heads, or those that an encoding inside attention tells; None if there is none."""
        if 'num_heads' in weights.recorded:
            return weights.recorded['num_heads']
        attn = self.attention(weights)
        return next((kind.infer_heads(attn) for kind in kinds(AttentionPosition) if kind.found_in(attn)), None)

    def infer_position(self, weights: Weights, prefix: int = 0) -> InferredPosition:
        """Find the position encodings of a file, whose tables have ``prefix`` rows before those of the patches."""
        entries: list[str | dict] = []
        grid = weights.grid
        tables = self.tables(weights)
        if tables:
            table = with_batch_axis(weights.tensors[tables[0]])
            grid = grid or square_grid(table.shape[1] - prefix)
            fixed_first = sorted(kinds(AbsolutePosition), key=lambda kind: kind.trainable)
            fitting = (kind.name for kind in fixed_first if kind.matches(table, grid, prefix)) if grid else ()
            entries.append(next(iter(fitting), 'learnable'))
        attn = self.attention(weights)
        inside = [kind for kind in kinds(AttentionPosition) if kind.found_in(attn)]
        for kind in inside:
            options = kind.infer_options(attn, prefix)
            entries.append(dict(type=kind.name, **options) if options else kind.name)
            grid = grid or kind.infer_grid(attn, prefix)
        unknown = () if 'pe_type' in weights.recorded else inside
        ambiguous = [text for kind in unknown for text in kind.ambiguous_options(attn, prefix)]
        layers = self.layers(weights)
        for kind in kinds(LayerPosition):
            options = kind.infer_options(layers)
            if options is not None:
                entries.append(dict(type=kind.name, **options) if options else kind.name)
        has_grid = bool(tables) or any(kind.has_grid for kind in inside)
        pe_type = weights.recorded.get('pe_type', entries if len(entries) > 1 else (entries or ['none'])[0])
        return InferredPosition(pe_type, grid if has_grid else None, has_grid and grid is None, ambiguous)

    def infer_patch_norm(self, weights: Weights, stem: str = 'patch_embed', post: str = 'norm1') -> str:
        """Return the key of ``PATCH_NORMS`` that leaves such norms in a stem, and behind tokens + PE.

        ``post`` is the name of the norm after the stem's linear map.
        """
        before, after = (weights.has(rf'{stem}\.{name}\.') for name in ('norm0', post))
        if before and after and not weights.has(rf'{stem}\.norm0\.bias$'):
            return 'rms'
        if weights.has(r'norm_pre\.'):
            return 'pre-post-posemb' if before else 'post-posemb'
        return {(True, True): 'dual', (True, False): 'pre', (False, True): 'post', (False, False): 'none'}[
            before, after
        ]

    def describe(self, weights: Weights, position: InferredPosition) -> Description:
        """Describe the position encodings of a file; the arguments are the most usual of those that fit."""
        grid, has_table = position.grid, bool(self.tables(weights))
        joinings, norms = self.infer_joinings(weights), self.infer_norms(weights)
        missing = 'no square, pass grid=(rows, columns)' if position.needs_grid else ''
        rows = {
            'pe_type': f"{position.pe_type}, or what else fits: see 'mind'"
            if position.ambiguous
            else position.pe_type,
            'pe grid': f'{grid[0]} x {grid[1]}' if grid else missing,
            'pe_joining': ' or '.join(joinings if has_table else joinings[:1]),
            'pe_norm': ' or '.join(norms) or 'none',
        }
        config = dict(pe_type=position.pe_type, pe_joining=joinings[0])
        if norms and norms[0] != 'layernorm':
            config['pe_norm'] = norms[0]
        choices = {'pe_joining': joinings, 'pe_norm': norms} if has_table else {}
        several = {key: values for key, values in choices.items() if len(values) > 1}
        several |= {'pe_type': position.ambiguous} if position.ambiguous else {}
        notes = [f'the file does not say whether {key} is {" or ".join(values)}' for key, values in several.items()]
        if position.needs_grid:
            notes.append("the PE is of no square grid: add the pretraining's to init_cfg, grid=(rows, columns)")
        return Description(rows, config, notes)
