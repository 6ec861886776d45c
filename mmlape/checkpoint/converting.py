"""Convert checkpoints between layouts, and average their weights."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from mmlape.checkpoint.heads import toolbox_file
from mmlape.checkpoint.key_maps import recognise_backbone
from mmlape.checkpoint.metadata import read_metadata
from mmlape.checkpoint.writing import write_tensors
from mmlape.errors import CheckpointError
from mmlape.weights.reading import read_checkpoint, require_finite, state_dict_of

TOOLBOXES = ('mmdet', 'mmseg')


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
    if is_npz and not target.wrapper:  # a layout of other code needs no metadata but the grid
        metadata = metadata.grids()
    write_tensors(tensors, dst, target.wrapper, overwrite, metadata)
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
        content = read_checkpoint(path)
        tensors = state_dict_of(content, path)
        require_finite(tensors, path)
        of_file, metadata = {name: value.shape for name, value in tensors.items()}, read_metadata(content, path)
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
