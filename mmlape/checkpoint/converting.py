"""Describe checkpoint files, and write them: in another layout, averaged, or to be published.

What is written are tensors and plain values only.
"""

import json
import logging
import shlex
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mmlape.checkpoint import gate
from mmlape.checkpoint.fetching import local_path
from mmlape.checkpoint.heads import describe_heads, toolbox_file
from mmlape.checkpoint.key_maps import recognise_backbone
from mmlape.checkpoint.metadata import KEY, Metadata, read_metadata
from mmlape.checkpoint.opening import (
    AVERAGES,
    OpenedFile,
    averages_only,
    not_finite,
    open_file,
    require_finite,
    state_dict_of,
)
from mmlape.checkpoint.trained_alone import KEY as FROZEN
from mmlape.checkpoint.trained_alone import FrozenPart, frozen_parts
from mmlape.console.log import log
from mmlape.errors import CheckpointError
from mmlape.files import atomic_path, sha256

TOOLBOXES = ('mmdet', 'mmseg')
NOT_PARAMETERS = ('num_batches_tracked', 'running_mean', 'running_var', 'relative_position_index')
UNKNOWN = (
    'name the CONFIG that it was trained with: the file records none, and no model of mmlape.{} '
    'that has a name has these names and shapes'
)


def inspect(path: str | Path) -> dict[str, object]:
    """Describe a checkpoint file: printable values by name, in the order to print them.

    Raises:
        CheckpointError: If the file cannot be read, or no backbone recognises it.
    """
    file = open_file(path)
    content, tensors = file.content, file.tensors
    if broken := not_finite(tensors):
        log(f'checkpoint {path}: {broken}', logging.WARNING)
    rows_of_head = describe_heads(tensors)
    if frozen_parts(file):
        return _head_alone(file, tensors, rows_of_head)
    try:
        backbone, weights = recognise_backbone(file)
    except CheckpointError:
        if not rows_of_head:
            raise
        return _head_alone(file, tensors, rows_of_head)
    adapter = backbone.checkpoint_adapter
    rows, config, notes = adapter.describe(backbone, weights, str(path))
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


def _head_alone(file: OpenedFile, tensors: dict[str, Tensor], rows: dict[str, str]) -> dict[str, object]:
    """Describe a file with a head, whose frozen backbone is in another file."""
    metadata, load = read_metadata(file), f'mmlape test CONFIG {shlex.quote(file.path)}'
    parts = [
        f'the {name} is that of {part.init_cfg["checkpoint"]}, SHA-256 of its tensors {part.digest[:8]}'
        for name, part in frozen_parts(file).items()
    ]
    return {
        'file': file.path,
        'sha256': sha256(local_path(file.path)),
        'layout': 'a head without its backbone',
        **rows,
        'parameters': f'{_count(tensors):,} in the file',
        'images': str(metadata.normalisation or 'the file does not say how they were normalised'),
        'to load it': load if parts else f"{load}, where CONFIG's model.backbone.init_cfg names the backbone's file",
        'notes': '; '.join(parts) or 'the backbone leaves no trace in the file but its width',
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


def convert(src: str | Path, dst: str | Path, to: str, overwrite: bool = False) -> list[str]:
    """Convert a backbone of any known layout, with a classifier's heads.

    Args:
        src: The file to read.
        dst: The file to write.
        to: One of the ``targets`` of the backbone's adapter; for a ViT 'mmlape' (our names), 'classifier' (a complete
            model, as of ``configs/deit``), 'timm' (LayerScale as timm has it) or 'lape' (the official file: under
            ``model``). 'mmdet' and 'mmseg' write a complete released detector or
            segmentor, heads included, as our configs' models name it.
        overwrite: Whether ``dst`` may be there already.

    Returns:
        Names of the source that were left out (detection heads and the like).

    Raises:
        CheckpointError: If the target has no place for something that the file tells of its model, or the backbone
            has no such target.
    """
    file = _complete(src)
    metadata = read_metadata(file)
    if to in TOOLBOXES:
        tensors, dropped = toolbox_file(file.tensors, to, src)
        require_finite(tensors, src)
        write_tensors(tensors, dst, 'state_dict', overwrite, metadata)
        return dropped
    backbone, weights = recognise_backbone(file)
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
    metadata = replace(metadata.alone(target.part), normalisation=weights.normalisation)
    write_tensors(tensors, dst, target.wrapper, overwrite, metadata)
    return weights.dropped + ([] if takes_heads else list(weights.head_tensors))


def average(files: Sequence[str | Path], dst: str | Path, overwrite: bool = False) -> None:
    """Average the weights of several checkpoints of one model in float64.

    Each tensor gets the widest type that it has in a file; integer counters are the last file's. What is recorded is
    what all files say.

    Raises:
        CheckpointError: With fewer than two files, if names or shapes differ or what files record, or if ``dst`` has
            no place for it.
    """
    if len(files) < 2:
        raise CheckpointError('averaging weights needs at least two checkpoints')
    sums: dict[str, Tensor] = {}
    dtypes: dict[str, torch.dtype] = {}
    shapes, recorded = None, None
    for path in files:
        file = _complete(path)
        tensors = file.tensors
        require_finite(tensors, path)
        of_file, metadata = {name: value.shape for name, value in tensors.items()}, read_metadata(file)
        shapes, recorded = shapes or of_file, recorded or metadata
        if of_file != shapes:
            different = sorted(set(of_file.items()) ^ set(shapes.items()))[:3]
            raise CheckpointError(f'{path} and {files[0]} are not of one model; they differ in {different}')
        common = metadata.common(recorded)
        if common is None:
            plain = f'{metadata.plain()} and {recorded.plain()}'
            raise CheckpointError(f'{path} and {files[0]} are not of one model; they record {plain}')
        recorded = common
        for name, value in tensors.items():
            dtypes[name] = torch.promote_types(value.dtype, dtypes.get(name, value.dtype))
            sums[name] = value.double() + sums.get(name, 0) if value.is_floating_point() else value
    mean = {
        name: (total / len(files) if dtypes[name].is_floating_point else total).to(dtypes[name])
        for name, total in sums.items()
    }
    write_tensors(mean, dst, 'state_dict', overwrite, recorded)


def publish(
    src: str | Path,
    dst: str | Path,
    weights: str = 'plain',
    config: str = '',
    leave_out: Callable[[dict[str, Tensor]], dict[str, FrozenPart]] | None = None,
) -> Path:
    """Write the weights alone, what the file records of its backbones, and a config that rebuilds the model.

    Args:
        src: The checkpoint.
        dst: A .safetensors file, named without the hash that its name gets.
        weights: 'plain' for those that were trained, or 'ema' for their average that MMEngine's EMAHook, timm or DeiT
            keeps.
        config: Text of the config, of `mmlape.lab.config.stored_config.published_config`.
        leave_out: Takes tensors out, and returns what the file says of them, as `take_frozen` does.

    Returns:
        The file.

    Raises:
        CheckpointError: If there are no such weights, ``dst`` is another kind of file, or what ``src`` records is not
            for publication.
    """
    dst = Path(dst)
    if dst.suffix != '.safetensors':
        raise CheckpointError(f'{dst}: published weights are a .safetensors file: end the name so')
    file = _complete(src)
    content, metadata = file.content, read_metadata(file)
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
    frozen = leave_out(tensors) if leave_out else {}
    backbones = {name: _published(record, src, name) for name, record in metadata.backbones.items()}
    written = dst.with_name(f'.{dst.name}')  # a file at dst stays
    told = json.dumps({name: part._asdict() for name, part in frozen.items()}, sort_keys=True)
    texts = {'cfg': config, FROZEN: told if frozen else ''}
    write_tensors(tensors, written, overwrite=True, metadata=replace(metadata, backbones=backbones), texts=texts)
    return written.replace(dst.with_name(f'{dst.stem}-{sha256(written)[:8]}{dst.suffix}'))


def _complete(path: str | Path) -> OpenedFile:
    """Open a checkpoint that lacks nothing."""
    file = open_file(path)
    if frozen_parts(file):
        raise CheckpointError(f'{path}: holds what was trained alone: give the complete checkpoint')
    return file


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


OUT_SUFFIXES = ('.pth', '.safetensors')


def write_tensors(
    tensors: dict[str, Tensor],
    path: str | Path,
    wrapper: str | None = None,
    overwrite: bool = False,
    metadata: Metadata | None = None,
    texts: Mapping[str, str] | None = None,
) -> None:
    """Write a ``.pth`` (under the key ``wrapper``, if given) or a ``.safetensors`` file atomically.

    A ``.pth`` without ``wrapper`` has a place for the grids of the metadata only, as a state dict brings them along.
    More ``texts`` are for a ``.safetensors``.

    Raises:
        CheckpointError: For another suffix, or a file that is there already.
    """
    path, metadata = Path(path), metadata or Metadata()
    recorded = metadata.plain()
    if path.suffix not in OUT_SUFFIXES:
        raise CheckpointError(f'{path.name}: the name must end with {" or ".join(OUT_SUFFIXES)}')
    if path.exists() and not overwrite:
        raise CheckpointError(f'{path} is there already; choose another name or pass --overwrite')
    tensors = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
    with atomic_path(path) as partial:
        if path.suffix == '.safetensors':
            from safetensors.torch import save_file

            every = {KEY: json.dumps(recorded) if recorded else '', **(texts or {})}
            described = {key: text for key, text in every.items() if text}
            save_file(tensors, partial, {'format': 'pt', **described})
            _sort_metadata(partial)
        else:
            meta = {'meta': {KEY: recorded}} if recorded else {}
            content = {wrapper: tensors, **meta} if wrapper else with_grids(tensors, metadata)
            # to a file that is open, as torch writes the name of a path, and the hash is of that
            with open(partial, 'wb') as file:
                torch.save(content, file)


def _sort_metadata(path: Path) -> None:
    """Sort the metadata of a safetensors file, whose library writes them in any order, for the same hash."""
    with open(path, 'r+b') as file:
        size = int.from_bytes(file.read(8), 'little')
        header = json.loads(file.read(size))
        header['__metadata__'] = dict(sorted(header['__metadata__'].items()))
        text = json.dumps(header, ensure_ascii=False, separators=(',', ':')).encode()
        file.seek(8)
        file.write(text.ljust(size))


def with_grids(tensors: dict[str, Tensor], metadata: Metadata) -> dict[str, Tensor]:
    """Return tensors as a state dict that notes the grids of its backbones, where torch looks for such notes."""
    noted = OrderedDict(tensors)
    noted._metadata = {
        name: {'grid': tuple(record['grid'])} for name, record in metadata.backbones.items() if 'grid' in record
    }
    return noted
