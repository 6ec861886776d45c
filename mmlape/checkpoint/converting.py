"""Describe checkpoints, convert them between layouts, publish them, average their weights.

Files that are written hold tensors and plain values only.
"""

import json
import logging
import os
import shlex
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mmlape.checkpoint.heads import Head, describe_heads, toolbox_file
from mmlape.checkpoint.key_maps import recognise_backbone
from mmlape.checkpoint.lookup import Candidate, Size
from mmlape.checkpoint.metadata import KEY, Metadata, read_metadata
from mmlape.errors import CheckpointError
from mmlape.files import atomic_path, sha256
from mmlape.log import log
from mmlape.weights import gate
from mmlape.weights.download import local_path
from mmlape.weights.reading import AVERAGES, averages_only, not_finite, read_checkpoint, require_finite, state_dict_of

NOT_PARAMETERS = ('num_batches_tracked', 'running_mean', 'running_var', 'relative_position_index')
TOOLBOXES = ('mmdet', 'mmseg')
OUT_SUFFIXES = ('.pth', '.safetensors', '.npz')
UNKNOWN = (
    'name the CONFIG that it was trained with: the file records none, and no model of mmlape.{} '
    'that has a name has these names and shapes'
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
        notes = [*notes, f'{len(weights.dropped) + len(weights.head_tensors)} tensors of heads and necks are left out']
    averages = next((key for key in AVERAGES if key in content), None)
    if averages_only(content):
        notes = [*notes, f'the weights are averaged ones (EMA), from {averages}; the file has no others']
    elif averages:
        notes = [*notes, f'averaged weights (EMA) are there too, under {averages}: `publish --weights ema` takes them']
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
        'images': f'{images}: {images.source}' if images else 'the file does not say how they were normalised',
        'to load it': f'{adapter.config_key}={_call(config)}' if config else UNKNOWN.format(backbone.__name__),
        'notes': '; '.join(notes) or 'none',
    }


def _head_alone(
    path: str | Path, content: dict, tensors: dict[str, Tensor], rows: dict[str, str], candidates: list[Candidate]
) -> dict[str, object]:
    """Describe a file with a head, whose frozen backbone is in another file."""
    metadata = read_metadata(content, path)
    return {
        'file': str(path),
        'sha256': sha256(local_path(path)),
        'layout': 'a head without its backbone',
        **rows,
        'config': ', '.join(one.name for one in candidates) or 'no released model of ours is of such a file',
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
    parts = (f'{key}={_call(value) if isinstance(value, dict) else repr(value)}' for key, value in options.items())
    return f'dict({", ".join(parts)})'


def write_tensors(
    tensors: dict[str, Tensor],
    path: str | Path,
    wrapper: str | None = None,
    overwrite: bool = False,
    metadata: Metadata | None = None,
    config: str = '',
) -> None:
    """Write a ``.pth`` (under the key ``wrapper``, if given), a ``.safetensors`` or an ``.npz`` file atomically.

    A ``.pth`` without ``wrapper`` and an ``.npz`` have tensors only, so no place for metadata. The text of a
    ``config`` is for a ``.safetensors``.

    Raises:
        CheckpointError: For another suffix, metadata for an ``.npz``, or a file that is there already.
    """
    path, recorded = Path(path), metadata.plain() if metadata else {}
    if path.suffix not in OUT_SUFFIXES:
        raise CheckpointError(f'{path.name}: the name must end with {" or ".join(OUT_SUFFIXES)}')
    if path.suffix == '.npz' and recorded:
        raise CheckpointError(
            f'{path.name}: an .npz has no place for what the source records, {recorded}; write a .pth or .safetensors'
        )
    if path.exists() and not overwrite:
        raise CheckpointError(f'{path} is there already; choose another name or pass --overwrite')
    tensors = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
    with atomic_path(path) as partial:
        if path.suffix == '.safetensors':
            from safetensors.torch import save_file

            texts = {KEY: json.dumps(recorded) if recorded else '', 'cfg': config}
            described = {key: text for key, text in texts.items() if text}
            save_file(tensors, partial, {'format': 'pt', **described})
            _sort_metadata(partial)
        elif path.suffix == '.npz':
            # NumPy has no bfloat16
            arrays = {name: v.float() if v.dtype == torch.bfloat16 else v for name, v in tensors.items()}
            np.savez(partial, **{name: value.numpy() for name, value in arrays.items()})
        else:
            meta = {'meta': {KEY: recorded}} if recorded else {}
            # to a file that is open, as torch writes the name of a path, and the hash is of that
            with open(partial, 'wb') as file:
                torch.save({wrapper: tensors, **meta} if wrapper else tensors, file)


def _sort_metadata(path: Path) -> None:
    """Sort the metadata of a safetensors file, whose library writes them in any order, for the same hash."""
    with open(path, 'r+b') as file:
        size = int.from_bytes(file.read(8), 'little')
        header = json.loads(file.read(size))
        header['__metadata__'] = dict(sorted(header['__metadata__'].items()))
        text = json.dumps(header, ensure_ascii=False, separators=(',', ':')).encode()
        file.seek(8)
        file.write(text.ljust(size))


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
        raise CheckpointError(f'unknown target {to!r}; choose one of: {", ".join((*targets, *TOOLBOXES))}')
    target = targets[to]
    arguments = adapter.arguments(backbone, weights)
    missing = target.missing(weights, arguments, adapter.assumed_arguments)
    if missing:
        raise CheckpointError(f'{src}: the {to} layout has no place for {", ".join(missing)}; use --to mmlape')
    takes_heads = target.takes_heads(weights)
    tensors = {**weights.tensors, **(weights.head_tensors if takes_heads else {})}
    tensors = target.translate(weights, tensors)
    require_finite(tensors, src)
    is_npz = Path(dst).suffix == '.npz'
    metadata = read_metadata(content, src).alone(target.part)
    metadata = replace(metadata, normalisation=None if is_npz else weights.normalisation)
    # a layout of other code has no place for metadata in an .npz, and needs none
    write_tensors(tensors, dst, target.wrapper, overwrite, None if is_npz and not target.wrapper else metadata)
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
            raise CheckpointError(f'{path} and {files[0]} are not of one model; they differ in {different}')
        found.append(read_metadata(content, path))
        with_metadata = [metadata for metadata in found if metadata.plain()]
        if with_metadata and with_metadata[-1] != with_metadata[0]:
            plain = ' and '.join(str(metadata.plain()) for metadata in (with_metadata[-1], with_metadata[0]))
            raise CheckpointError(f'{path} and {files[0]} are not of one model; they record {plain}')
        for name, value in tensors.items():
            sums[name] = value.double() + sums.get(name, 0) if value.is_floating_point() else value
    mean = {
        name: (sums[name] / len(files)).to(value.dtype) if value.is_floating_point() else sums[name]
        for name, value in tensors.items()
    }
    write_tensors(mean, dst, 'state_dict', overwrite, with_metadata[0] if len(with_metadata) == len(files) else None)


def publish(src: str | Path, dst: str | Path, weights: str = 'plain', config: str = '') -> Path:
    """Write the weights alone, what the file records of its backbones, and a config that rebuilds the model.

    Args:
        src: The checkpoint.
        dst: A .safetensors file, named without the hash that its name gets.
        weights: 'plain' for those that were trained, or 'ema' for their average that MMEngine's EMAHook, timm or DeiT
            keeps.
        config: Text of the config, of `mmlape.lab.engine.stored_config.published_config`.

    Returns:
        The file.

    Raises:
        CheckpointError: If there are no such weights, ``dst`` is another kind of file, or what ``src`` records is not
            for publication.
    """
    dst = Path(dst)
    if dst.suffix != '.safetensors':
        raise CheckpointError(f'{dst}: published weights are a .safetensors file: end the name so')
    tensors, metadata = weights_to_publish(src, weights)
    dst.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix='.', dir=dst.parent) as folder:  # a file at dst stays
        written = Path(folder) / dst.name
        write_tensors(tensors, written, metadata=metadata, config=config)
        named = dst.with_name(f'{dst.stem}-{sha256(written)[:8]}{dst.suffix}')
        os.replace(written, named)
    return named


def weights_to_publish(src: str | Path, weights: str) -> tuple[dict[str, Tensor], Metadata]:
    """Return the weights of a checkpoint and what it records; arguments and errors are those of `publish`."""
    content = read_checkpoint(src)
    metadata = read_metadata(content, src)
    averages = [key for key in AVERAGES if key in content]
    if weights == 'ema' and averages:
        content = {'state_dict': content[averages[0]]}
    elif weights == 'ema' and 'ema_state_dict' not in content:
        raise CheckpointError(f'{src}: no EMA weights in it; train with EMAHook, or publish the plain weights')
    if weights == 'plain' and averages_only(content):
        raise CheckpointError(f'{src}: its weights are averaged ones (EMA) only; pass --weights ema')
    if weights == 'plain' and 'ema_state_dict' in content:
        # EMAHook saves the average as the model's weights, and under this name the plain ones
        content = {'state_dict': content['ema_state_dict']}
    tensors = state_dict_of(content, src)
    tensors.pop('steps', None)  # EMAHook's own counter
    require_finite(tensors, src)
    backbones = {name: _published(record, src, name) for name, record in metadata.backbones.items()}
    return tensors, replace(metadata, backbones=backbones)


def _published(record: dict[str, Any], src: str | Path, name: str) -> dict[str, Any]:
    """Return what a file records of a backbone, all of it arguments of its constructor; or raise CheckpointError."""
    config = record.get('config') or {}
    described = {'type': config.get('type', 'mmlape.VisionTransformer')}
    try:
        values = gate.published({'config': config, 'record': {**described, **record, 'config': None}})
    except ValueError as error:
        raise CheckpointError(
            f'{src}: what it records of its {name or "backbone"} cannot be published ({error}); --import MODULE '
            'imports the module of an own class'
        ) from error
    return {key: values['config'] if key == 'config' else values['record'][key] for key in record}
