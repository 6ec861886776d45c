"""How the tensors of a file become those of a model: rows of tables, norms of the PE, encodings inside attention.

The rows of a stored table are read by one decision for all models, and no guess. The grid is what the file records, or
its user says; else the model's own, where the rows fit it; else a square. A square without the rows that such tokens
usually have is as good a reading as those rows and a grid that nothing tells: which of both it is, the user says.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from mmlape.checkpoint.key_maps import Weights
from mmlape.checkpoint.loading import LoadOptions, LoadReport
from mmlape.errors import CheckpointError
from mmlape.models.grid import Grid, square_grid
from mmlape.models.position import NormPlaces

Tokens = dict[str, int]
"""The tokens before the patches that have rows of a table, and how many each."""


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


class Reading(NamedTuple):
    """What the rows of a table are."""

    tokens: Tokens
    grid: Grid


def read_rows(
    rows: int,
    tokens: Sequence[Tokens],
    recorded: Sequence[Grid],
    own: Sequence[Grid],
    table: str,
    remedy: str = 'grid=(rows, columns)',
) -> Reading:
    """Return what so many rows are.

    Args:
        rows: Of the table.
        tokens: The tokens that they can begin with; the usual ones first.
        recorded: The grid that is known, if one is; more than one where tables can have several sizes.
        own: That of the model, if there is one.
        table: The file and the name of the table, for messages.
        remedy: What says the grid, for messages.

    Raises:
        CheckpointError: If nothing fits, or two readings do.
    """
    for grid in recorded or own:
        for of_table in tokens:
            if rows == sum(of_table.values()) + grid[0] * grid[1]:
                return Reading(of_table, grid)
    if recorded:
        patches = ' or '.join(str(rows - sum(of_table.values())) for of_table in tokens)
        raise CheckpointError(f'{table} has {patches} patch rows, which is not the grid {_spelt(recorded[0])}')
    readings = [(of_table, square_grid(rows - sum(of_table.values()))) for of_table in tokens]
    squares = [Reading(of_table, grid) for of_table, grid in readings if grid]
    if len(squares) == 1 and squares[0].tokens == tokens[0]:
        return squares[0]
    possible = [
        f'{_spelt(grid) if grid else f"{rows - sum(of_table.values())} (no square grid)"} patches beside '
        f'{", ".join(of_table) or "no token"}'
        for of_table, grid in readings
        if grid or of_table == tokens[0]
    ]
    raise CheckpointError(f'{table} has {rows} rows, of {" or ".join(possible)}: say which by {remedy}')


def _spelt(grid: Grid) -> str:
    return f'{grid[0]}x{grid[1]}'


def norm_place(name: str) -> str | None:
    """Return the name of the norm of a PE that a tensor belongs to; None for other tensors."""
    place, _, _ = name.rpartition('.')
    return place if place.rpartition('.')[2] == 'pe_norm' else None


def _parent(place: str) -> str:
    """Return what the names of a layer begin with, from that of a norm in it."""
    return place.removesuffix('pe_norm')


def fit_pe_norms(
    model: nn.Module,
    joining: str,
    tensors: dict[str, Tensor],
    absent: tuple[str, ...],
    options: LoadOptions,
    report: LoadReport,
) -> None:
    """Refuse norms of the PE that only one side has, unless that is allowed; then drop those of the file.

    ``joining`` is the model's, ``absent`` are beginnings of names of what it leaves out. Norms of layers that only one
    side has are no matter of the joining.

    Raises:
        CheckpointError: If that is not allowed.
    """
    names_of_model = model.state_dict()
    stored = {place for place in map(norm_place, tensors) if place}
    wanted = {place for place in map(norm_place, names_of_model) if place}
    lost = {
        place
        for place in stored - wanted
        if not f'{place}.'.startswith(absent) and any(name.startswith(_parent(place)) for name in names_of_model)
    }
    new = {place for place in wanted - stored if any(name.startswith(_parent(place)) for name in tensors)}
    if not lost and not new:
        return
    if not options.allow_joining_mismatch:
        trained = 'without LaPE' if not stored else 'with LaPE' if not wanted else 'with other PE norms'
        which = [f'{len(lost)} of its PE norms would be lost ({min(lost)})'] if lost else []
        which += [f'{len(new)} PE norms would be new ({min(new)})'] if new else []
        raise CheckpointError(
            f'checkpoint {report.path} was trained {trained}, but the model has '
            f'pe_joining={joining!r}: {", ".join(which)}, and its weights have learnt another '
            'attention input. Set the pe_joining that it was trained with, or pass '
            'allow_joining_mismatch=True in init_cfg to fine-tune from it all the same'
        )
    dropped = [name for name in tensors if norm_place(name) in lost]
    for name in dropped:
        del tensors[name]
    report.dropped += dropped


def read_table(
    model: nn.Module, name: str, table: Tensor, tokens: Sequence[Tokens], grid: Grid | None, path: str
) -> Reading:
    """Return how the rows of a file's table (1, rows, D) are read for a model.

    They can begin with those of ``tokens``; ``grid`` is that of the file's patches, None if it is unknown. A table
    need not be larger than the grid, as the model's may be.

    Raises:
        CheckpointError: If nothing tells it.
    """
    recorded, own = (dict.fromkeys((model.table_grid(name, of), of)) if of else {} for of in (grid, model.grid))
    return read_rows(table.shape[1], tokens, [*recorded], [*own], f'checkpoint {path}: {name}')


def require_kind(model: nn.Module, name: str, table: Tensor, reading: Reading, report: LoadReport) -> None:
    """Refuse a table that is not of the model's kind; one whose kind a file records may have been resized."""
    kind, (rows, columns) = model.position.absolute, reading.grid
    if not kind.matches(table, reading.grid, sum(reading.tokens.values())):
        report.problems.append(
            f'wrong PE: {name} is not the table of pe_type={kind.name!r} on a grid of '
            f"{rows}x{columns}; if it was resized, as T2T-ViT's public code does for other "
            "images, pe_type='learnable' takes it as it is"
        )


def resized_table(model: nn.Module, name: str, table: Tensor, reading: Reading, resized: dict[str, str]) -> Tensor:
    """Return a table (1, rows, D) on the model's grid, with the rows of tokens that it has."""
    src, dst = reading.grid, model.table_grid(name, model.grid)
    if src != dst:
        resized[name] = f'{src[0]}x{src[1]} -> {dst[0]}x{dst[1]}'
    return model.resize_table(table, src, dst, sum(reading.tokens.values()))


def fit_table(model: nn.Module, name: str, table: Tensor, reading: Reading, report: LoadReport) -> Tensor:
    """Return the rows of a model's prefix tokens, then the patches resized to its grid, (1, rows, D).

    Tokens without a row get one of zeros, which is what no row means where the PE is added to the tokens.
    """
    stored, tokens = reading.tokens, model.table_tokens()
    num_prefix, resized = sum(stored.values()), resized_table(model, name, table, reading, report.resized)
    rows = dict(zip(stored, resized[:, :num_prefix].split(list(stored.values()), dim=1)))
    report.dropped += [f'{name}[{token}]' for token in stored if token not in tokens]
    prefix = []
    for token, count in tokens.items():
        # an adapter has the row of a class token that does not run along: nothing new for anyone
        if token not in rows and model.num_prefix:
            report.new.append(f'{name}[{token}] (zeros)')
        prefix.append(rows.get(token, resized.new_zeros(1, count, resized.shape[2])))
    return torch.cat((*prefix, resized[:, num_prefix:]), dim=1)


def resize_inside(
    model: nn.Module, stored: dict[str, Tensor], grid: Grid | None, resized: dict[str, str]
) -> dict[str, Tensor]:
    """Return the tensors of the encodings inside attention that a model takes otherwise than a file has them.

    ``grid`` is that of the file's PE, None if it is unknown; ``resized`` gets what was resized, and how, by name.
    """
    out: dict[str, Tensor] = {}
    for start, layer in zip(model.layer_names, model.all_layers if model.position.inside else ()):
        prefix = f'{start}{layer.attn_name}.'
        attn = {name.removeprefix(prefix): value for name, value in stored.items() if name.startswith(prefix)}
        for encoding in layer.attention.encodings:
            fitted = encoding.fit(attn)
            for name in (name for name in attn if fitted[name] is not attn[name]):
                out[prefix + name] = fitted[name]
                resized[prefix + name] = f'{tuple(attn[name].shape)} -> {tuple(fitted[name].shape)}'
            attn = fitted
        for encoding in layer.attention.encodings:
            if not (encoding.has_grid and encoding.found_in(attn)):
                continue
            # tables of a window have the window's grid, whatever that of the image
            known, dst = None if encoding.slot.window else grid, encoding.slot.grid
            src = encoding.infer_grid(attn, known or dst)
            if known and src != known:
                raise CheckpointError(f'the tables of {prefix}* are not of the grid {known[0]}x{known[1]}')
            if src in (None, dst):
                continue
            for name, value in encoding.resize(attn, src).items():
                if value is not attn.get(name):
                    out[prefix + name] = value
                    resized[prefix + name] = f'{src[0]}x{src[1]} -> {dst[0]}x{dst[1]}'
    return out
