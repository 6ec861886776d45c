"""Describe checkpoints, convert them between layouts, publish them, average their weights.

Files that are written hold tensors and plain values only.
"""

import contextlib
import json
import logging
import os
import shlex
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from mmlape.checkpoint.heads import Head, describe_heads, toolbox_file
from mmlape.checkpoint.key_maps import recognise_backbone
from mmlape.checkpoint.lookup import Candidate, Size
from mmlape.checkpoint.metadata import KEY, Metadata, read_metadata
from mmlape.checkpoint.redaction import Redaction, hosts_in
from mmlape.errors import CheckpointError
from mmlape.files import atomic_path, read_json, sha256, write_text
from mmlape.log import log
from mmlape.weights.download import local_path
from mmlape.weights.plain_config import read_plain, write_plain
from mmlape.weights.reading import (
    AVERAGES,
    averages_only,
    not_finite,
    read_checkpoint,
    require_finite,
    state_dict_of,
)

NOT_PARAMETERS = ('num_batches_tracked', 'running_mean', 'running_var', 'relative_position_index')
TOOLBOXES = ('mmdet', 'mmseg')
OUT_SUFFIXES = ('.pth', '.safetensors', '.npz')
UNKNOWN = (
    'name the CONFIG that it was trained with: the file records none, and no model of mmlape.{} '
    'that has a name has '
    'these names and shapes'
)


Released = Callable[[Head, Size], Iterable[Candidate]]
"""Returns the configs that released models belong to, of a head and of backbones of a size."""


def inspect(path: str | Path, released: Released = lambda head, size: ()) -> dict[str, object]:
    """Describe a checkpoint file: printable values by name, in the order to print them.

    Args:
        path: The file.
        released: Where configs of complete models are found.

    Raises:
        CheckpointError: If the file cannot be read, or no backbone recognises it.
    """
    content = read_checkpoint(path)
    tensors = state_dict_of(content, path)
    if broken := not_finite(tensors):
        log(f'checkpoint {path}: {broken}', logging.WARNING)
    head, rows_of_head = describe_heads(tensors)
    try:
        backbone, weights = recognise_backbone(content, path)
    except CheckpointError:
        if not rows_of_head:
            raise
        alone = list(released(head, (None, None))) if head and head.channels else []
        return _head_alone(path, content, tensors, rows_of_head, alone)
    adapter = backbone.checkpoint_adapter
    candidates = released(head, adapter.size(weights)) if head else ()
    fitting = [one for one in candidates if adapter.compare(one, weights)]
    rows, config, notes = adapter.describe(backbone, weights, str(path), fitting[:1])
    if head:
        rows_of_head['config'] = (
            ', '.join(one.name for one in fitting) or 'no released model of ours is of such a file'
        )
    if weights.dropped or weights.head_tensors:
        notes = [
            *notes,
            f'{len(weights.dropped) + len(weights.head_tensors)} tensors of heads and necks are '
            'left out',
        ]
    averages = next((key for key in AVERAGES if key in content), None)
    if averages_only(content):
        notes = [
            *notes,
            f'the weights are averaged ones (EMA), from {averages}; the file has no others',
        ]
    elif averages:
        notes = [
            *notes,
            f'averaged weights (EMA) are there too, under {averages}: `publish --weights ema` '
            'takes them',
        ]
    images = weights.normalisation
    dtypes = Counter(str(value.dtype).removeprefix('torch.') for value in weights.tensors.values())
    return {
        'file': str(path),
        'sha256': sha256(local_path(path)),
        'layout': weights.layout,
        **rows_of_head,
        **rows,
        'parameters': f'{_count(weights.tensors):,} in the {adapter.config_key}, {_count(tensors):,} in the file',
        'dtype': ', '.join(f'{name} ({count})' for name, count in dtypes.items()),
        'images': f'{images}: {images.source}'
        if images
        else 'the file does not say how they were normalised',
        'to load it': f'{adapter.config_key}={_call(config)}'
        if config
        else UNKNOWN.format(backbone.__name__),
        'notes': '; '.join(notes) or 'none',
    }


def _head_alone(
    path: str | Path,
    content: dict,
    tensors: dict[str, Tensor],
    rows: dict[str, str],
    candidates: list[Candidate],
) -> dict[str, object]:
    """Describe a file with a head, whose frozen backbone is in another file."""
    metadata = read_metadata(content, path)
    return {
        'file': str(path),
        'sha256': sha256(local_path(path)),
        'layout': 'a head without its backbone',
        **rows,
        'config': ', '.join(one.name for one in candidates)
        or 'no released model of ours is of such a file',
        'parameters': f'{_count(tensors):,} in the file',
        'images': str(metadata.normalisation or 'the file does not say how they were normalised'),
        'to load it': f'mmlape test CONFIG {shlex.quote(str(path))}, where '
        "CONFIG's model.backbone.init_cfg names the backbone's file",
        'notes': 'the backbone leaves no trace in the file but its width',
    }


def _count(tensors: dict[str, Tensor]) -> int:
    parameters = (name for name in tensors if not name.endswith(NOT_PARAMETERS))
    return sum(tensors[name].numel() for name in parameters)


def _call(options: dict) -> str:
    """Write ``dict(...)`` as in a configuration."""
    if not all(str(key).isidentifier() for key in options):
        return repr(options)
    parts = (
        f'{key}={_call(value) if isinstance(value, dict) else repr(value)}'
        for key, value in options.items()
    )
    return f'dict({", ".join(parts)})'


def write_tensors(
    tensors: dict[str, Tensor],
    path: str | Path,
    wrapper: str | None = None,
    overwrite: bool = False,
    metadata: Metadata | None = None,
) -> None:
    """Write a ``.pth`` (under the key ``wrapper``, if given), a ``.safetensors`` or an ``.npz`` file atomically.

    A ``.pth`` without ``wrapper`` and an ``.npz`` have tensors only, so no place for metadata.

    Raises:
        CheckpointError: For another suffix, metadata for an ``.npz``, or a file that is there already.
    """
    path, recorded = Path(path), metadata.plain() if metadata else {}
    if path.suffix not in OUT_SUFFIXES:
        raise CheckpointError(f'{path.name}: the name must end with {" or ".join(OUT_SUFFIXES)}')
    if path.suffix == '.npz' and recorded:
        raise CheckpointError(
            f'{path.name}: an .npz has no place for what the source records, {recorded}; write a '
            '.pth or .safetensors'
        )
    if path.exists() and not overwrite:
        raise CheckpointError(f'{path} is there already; choose another name or pass --overwrite')
    tensors = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
    with atomic_path(path) as partial:
        if path.suffix == '.safetensors':
            from safetensors.torch import save_file

            save_file(
                tensors,
                partial,
                {'format': 'pt', **({KEY: json.dumps(recorded)} if recorded else {})},
            )
        elif path.suffix == '.npz':
            # NumPy has no bfloat16
            arrays = {
                name: v.float() if v.dtype == torch.bfloat16 else v for name, v in tensors.items()
            }
            np.savez(partial, **{name: value.numpy() for name, value in arrays.items()})
        else:
            meta = {'meta': {KEY: recorded}} if recorded else {}
            # to a file that is open, as torch writes the name of a path, and the hash is of that
            with open(partial, 'wb') as file:
                torch.save({wrapper: tensors, **meta} if wrapper else tensors, file)


def convert(src: str | Path, dst: str | Path, to: str, overwrite: bool = False) -> list[str]:
    """Convert a backbone of any known layout, with a classifier's heads.

    Args:
        src: The file to read.
        dst: The file to write.
        to: One of the ``targets`` of the backbone's adapter; for a ViT 'mmlape' (our names), 'classifier' (a complete
            model, as of ``configs/deit``), 'timm' (LayerScale as timm has it), 'lape' (the official file: under
            ``model``), 'big_vision' or 'open_clip'. 'mmdet' and 'mmseg' write a complete released detector or
            segmentor, heads included, as our configs' models name it.
        overwrite: Whether ``dst`` may be there already.

    Returns:
        Names of the source that were left out (detection heads and the like).

    Raises:
        CheckpointError: If the target has no place for something that the file tells of its model, or the backbone
            has no such target.
    """
    if to in TOOLBOXES:
        return _convert_complete(src, dst, to, overwrite)
    backbone, weights = recognise_backbone(content := read_checkpoint(src), src)
    adapter = backbone.checkpoint_adapter
    targets = adapter.targets()
    if to not in targets:
        raise CheckpointError(
            f'unknown target {to!r}; choose one of: {", ".join((*targets, *TOOLBOXES))}'
        )
    target = targets[to]
    arguments = adapter.arguments(backbone, weights)
    missing = target.missing(weights, arguments, adapter.assumed_arguments)
    if missing:
        raise CheckpointError(
            f'{src}: the {to} layout has no place for {", ".join(missing)}; use --to mmlape'
        )
    takes_heads = target.takes_heads(weights)
    tensors = {**weights.tensors, **(weights.head_tensors if takes_heads else {})}
    tensors = target.rename(tensors) if target.rename else tensors
    require_finite(tensors, src)
    is_npz = Path(dst).suffix == '.npz'
    metadata = read_metadata(content, src).alone(target.part)
    metadata = replace(metadata, normalisation=None if is_npz else weights.normalisation)
    # a layout of other code has no place for metadata in an .npz, and needs none
    write_tensors(
        tensors, dst, target.wrapper, overwrite, None if is_npz and not target.wrapper else metadata
    )
    return weights.dropped + ([] if takes_heads else list(weights.head_tensors))


def _convert_complete(src: str | Path, dst: str | Path, to: str, overwrite: bool) -> list[str]:
    content = read_checkpoint(src)

    def translate(tensors: dict[str, Tensor]) -> tuple[dict[str, Tensor], list[str]]:
        _, weights = recognise_backbone({'state_dict': tensors}, src)
        return weights.tensors, weights.dropped

    tensors, dropped = toolbox_file(state_dict_of(content, src), translate, to, src)
    require_finite(tensors, src)
    metadata = read_metadata(content, src)
    write_tensors(tensors, dst, 'state_dict', overwrite, metadata)
    return dropped


def average(files: Sequence[str | Path], dst: str | Path, overwrite: bool = False) -> None:
    """Average the weights of several checkpoints of one model in float64; integer counters are the last file's.

    Raises:
        CheckpointError: With fewer than two files, if names or shapes differ or what files record, or if ``dst`` has
            no place for it.
    """
    if len(files) < 2:
        raise CheckpointError('averaging weights needs at least two checkpoints')
    first, sums, found = None, {}, []
    for path in files:
        content = read_checkpoint(path)
        tensors = state_dict_of(content, path)
        require_finite(tensors, path)
        shapes = {name: value.shape for name, value in tensors.items()}
        first = first or shapes
        if shapes != first:
            different = sorted(set(shapes.items()) ^ set(first.items()))[:3]
            raise CheckpointError(
                f'{path} and {files[0]} are not of one model; they differ in {different}'
            )
        found.append(read_metadata(content, path))
        known = [metadata for metadata in found if metadata.plain()]
        if known and known[-1] != known[0]:
            plain = ' and '.join(str(metadata.plain()) for metadata in (known[-1], known[0]))
            raise CheckpointError(
                f'{path} and {files[0]} are not of one model; they record {plain}'
            )
        for name, value in tensors.items():
            sums[name] = value.double() + sums.get(name, 0) if value.is_floating_point() else value
    mean = {
        name: (sums[name] / len(files)).to(value.dtype) if value.is_floating_point() else sums[name]
        for name, value in tensors.items()
    }
    write_tensors(
        mean, dst, 'state_dict', overwrite, known[0] if len(known) == len(files) else None
    )


def publish(src: str | Path, dst: str | Path, weights: str = 'plain') -> tuple[Path, Path]:
    """Strip everything but the weights, put the hash into the name, and write a model card beside it.

    Args:
        src: The checkpoint.
        dst: Name without hash, for example ``weights/deit-tiny-lape.pth``.
        weights: 'plain' for those that were trained, or 'ema' for their average that MMEngine's EMAHook, timm or DeiT
            keeps.

    Returns:
        The file and its card.

    Raises:
        CheckpointError: If there are no such weights, or ``dst`` has no place for what ``src`` records.
    """
    tensors, metadata = weights_to_publish(src, weights)
    dst, run = Path(dst), read_run(Path(src))
    dst.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix='.', dir=dst.parent) as folder:  # a file at dst stays
        written = Path(folder) / dst.name
        write_tensors(tensors, written, 'state_dict', metadata=metadata)
        named = dst.with_name(f'{dst.stem}-{sha256(written)[:8]}{dst.suffix}')
        os.replace(written, named)
    card = named.with_suffix('.md')
    write_text(card, model_card(named, Path(src), weights, tensors, run))
    return named, card


def weights_to_publish(src: str | Path, weights: str) -> tuple[dict[str, Tensor], Metadata]:
    """Return the weights of a checkpoint and what it records; arguments and errors are those of `publish`."""
    content = read_checkpoint(src)
    metadata = read_metadata(content, src)
    averages = [key for key in AVERAGES if key in content]
    if weights == 'ema' and averages:
        content = {'state_dict': content[averages[0]]}
    elif weights == 'ema' and 'ema_state_dict' not in content:
        raise CheckpointError(
            f'{src}: no EMA weights in it; train with EMAHook, or publish the plain weights'
        )
    if weights == 'plain' and averages_only(content):
        raise CheckpointError(
            f'{src}: its weights are averaged ones (EMA) only; pass --weights ema'
        )
    if weights == 'plain' and 'ema_state_dict' in content:
        # EMAHook saves the average as the model's weights, and under this name the plain ones
        content = {'state_dict': content['ema_state_dict']}
    tensors = state_dict_of(content, src)
    tensors.pop('steps', None)  # EMAHook's own counter
    require_finite(tensors, src)
    return tensors, replace(metadata, backbones=Redaction().values(metadata.backbones))


def model_card(file: Path, src: Path, weights: str, tensors: dict[str, Tensor], run: 'Run') -> str:
    """Write the model card: what it is, its hash, and the records of the run that stand beside the source."""
    total = sum(value.numel() for value in tensors.values() if value.is_floating_point())
    lines = [f'# {file.stem}', '', f'- file: `{file.name}`', f'- SHA-256: `{sha256(file)}`']
    lines += [f'- values: {total:,}', f'- weights: {weights}', f'- made from: `{src.name}`']
    for name, record in run.records.items():
        lines += [
            '',
            f'## {name}',
            '',
            '```json',
            json.dumps(record, indent=2, ensure_ascii=False),
            '```',
        ]
    if run.config is not None:
        lines += ['', f'## {run.name}.py', '', '```python', write_plain(run.config).strip(), '```']
    elif run.name:
        lines += ['', f'`{run.name}.py` is more than plain values, and is left out.']
    return '\n'.join(lines) + '\n'


class Run(NamedTuple):
    """What is published of the run that a checkpoint is of."""

    records: dict[str, dict]  # by the name of their file
    name: str  # of the config; empty without one
    config: (
        dict[str, Any] | None
    )  # its values; None without one, or if it is more than plain values
    redacted: list[str]  # the places of values that are left out or replaced


def read_run(src: Path) -> Run:
    """Read the records and the config that stand beside a checkpoint, without what is not for publication."""
    records, files, values = run_records(src), run_config(src), None
    if files:
        with contextlib.suppress(CheckpointError):
            values = read_plain(files[0].read_bytes(), files[0])
    redaction = Redaction(hosts_in([records, values]))
    records = {name: redaction.values(record, name) for name, record in records.items()}
    config = None if values is None else redaction.values(values, 'config.py')
    return Run(records, files[0].stem if files else '', config, redaction.changed)


def run_records(src: Path) -> dict[str, dict]:
    """Return the records of the run that stand beside a checkpoint and belong to it, by name of the file."""
    found = {}
    for name in ('run.json', 'metrics.json'):
        record = read_json(src.parent / name)
        if (
            record and Path(record.get('checkpoint') or src).resolve() == src.resolve()
        ):  # metrics may be of another one
            found[name] = record
    return found


def run_config(src: Path) -> list[Path]:
    """Return the config that a run has written beside its checkpoint; none elsewhere."""
    return sorted(src.parent.glob('*.py'))[:1]
