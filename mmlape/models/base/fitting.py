"""How the tensors of a file become those of a model: norms of the PE, tables, and encodings inside attention."""

import torch
from torch import Tensor, nn

from mmlape.checkpoint.loading import LoadOptions, LoadReport
from mmlape.errors import CheckpointError
from mmlape.models.base.tensor_names import with_batch_axis
from mmlape.models.grid import Grid, square_grid


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
    own = model.state_dict()
    stored = {place for place in map(norm_place, tensors) if place}
    wanted = {place for place in map(norm_place, own) if place}
    lost = {
        place
        for place in stored - wanted
        if not f'{place}.'.startswith(absent)
        and any(name.startswith(_parent(place)) for name in own)
    }
    new = {
        place
        for place in wanted - stored
        if any(name.startswith(_parent(place)) for name in tensors)
    }
    if not lost and not new:
        return
    if not options.allow_joining_mismatch:
        trained = (
            'without LaPE' if not stored else 'with LaPE' if not wanted else 'with other PE norms'
        )
        which = [f'{len(lost)} of its PE norms would be lost ({min(lost)})'] if lost else []
        which += [f'{len(new)} PE norms would be new ({min(new)})'] if new else []
        raise CheckpointError(
            f'checkpoint {report.path} was trained {trained}, but the model has '
            f'pe_joining={joining!r}: '
            f'{", ".join(which)}, and its weights have learnt another attention input. '
            'Set the pe_joining that it was trained with, or pass allow_joining_mismatch=True in '
            'init_cfg to '
            'fine-tune from it all the same'
        )
    dropped = [name for name in tensors if norm_place(name) in lost]
    for name in dropped:
        del tensors[name]
    report.dropped += dropped


def _infer_grid(
    table: Tensor, name: str, tokens: dict[str, int], grid: Grid | None, path: str
) -> Grid:
    """Return the grid of a stored table (1, rows, D); CheckpointError if its rows are not those of one."""
    patches = table.shape[1] - sum(tokens.values())
    grid = grid or square_grid(patches)
    if grid is None:
        raise CheckpointError(
            f'checkpoint {path}: {name} has {patches} rows beside those of '
            f'{", ".join(tokens) or "no prefix token"}, '
            'which is no square grid; pass grid=(rows, columns) in init_cfg'
        )
    if grid[0] * grid[1] != patches:
        raise CheckpointError(
            f'checkpoint {path}: {name} has {patches} patch rows, which is not the grid '
            f'{grid[0]}x{grid[1]}'
        )
    return grid


def fit_table(
    table: Tensor,
    name: str,
    stored: dict[str, int],
    grid: Grid | None,
    model: nn.Module,
    report: LoadReport,
    recorded: bool,
) -> Tensor:
    """Return the rows of a model's prefix tokens, then the patches resized to its grid, (1, rows, D).

    Tokens without a row get one of zeros, which is what no row means where the PE is added to the tokens. The table
    has rows for the tokens ``stored``, how many each, and for ``grid``; None for a square. One whose kind the file has
    ``recorded`` may have been resized.
    """
    kind, own, tokens = (
        model.position.absolute,
        model.table_grid(name, model.grid),
        model.table_tokens(),
    )
    table = with_batch_axis(table)
    source = _infer_grid(table, name, stored, grid, report.path)
    num_prefix = sum(stored.values())
    if not recorded and not kind.matches(table, source, num_prefix):
        report.problems.append(
            f'wrong PE: {name} is not the table of pe_type={kind.name!r} on a grid of '
            f'{source[0]}x{source[1]}; '
            "if it was resized, as T2T-ViT's public code does for other images, "
            "pe_type='learnable' takes it as it is"
        )
    resized = kind.resize(table, source, own, num_prefix, model.interpolate_mode)
    if source != own:
        report.resized[name] = f'{source[0]}x{source[1]} -> {own[0]}x{own[1]}'
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
        attn = {
            name.removeprefix(prefix): value
            for name, value in stored.items()
            if name.startswith(prefix)
        }
        own = layer.attention.state_dict()
        for encoding in layer.attention.encodings:
            fitted = encoding.fit(attn)
            for name in (name for name in attn if fitted[name] is not attn[name]):
                out[prefix + name] = fitted[name]
                resized[prefix + name] = f'{tuple(attn[name].shape)} -> {tuple(fitted[name].shape)}'
            attn = fitted
        if not grid and all(
            own[name].shape == value.shape for name, value in attn.items() if name in own
        ):
            continue
        for encoding in layer.attention.encodings:
            if not (encoding.has_grid and encoding.found_in(attn)):
                continue
            # tables of a window have the window's grid, whatever that of the image
            known, dst = None if encoding.slot.window else grid, encoding.slot.grid
            src = known or encoding.infer_grid(attn, encoding.slot.num_prefix)
            if src in (None, dst):
                continue
            for name, value in encoding.resize(attn, src).items():
                if value is not attn.get(name):
                    out[prefix + name] = value
                    resized[prefix + name] = f'{src[0]}x{src[1]} -> {dst[0]}x{dst[1]}'
    return out
