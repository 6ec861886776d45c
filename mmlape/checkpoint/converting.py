"""Write checkpoints: convert between layouts, publish, average weights. Files hold tensors and plain values only."""

import os
import re
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from mmlape.checkpoint.describing import sha256
from mmlape.checkpoint.key_maps import Weights, translate
from mmlape.checkpoint.reading import read_checkpoint, state_dict_of
from mmlape.errors import CheckpointError

TARGETS = ('mmlape', 'timm', 'lape')
OUT_SUFFIXES = ('.pth', '.safetensors')


def write_tensors(tensors: dict[str, Tensor], path: str | Path, wrapper: str | None = None, overwrite=False) -> None:
    """Write a ``.pth`` (under the key ``wrapper``, if given) or a ``.safetensors`` file, whole or not at all.

    Raises:
        CheckpointError: for another suffix, or a file that is there already.
    """
    path = Path(path)
    if path.suffix not in OUT_SUFFIXES:
        raise CheckpointError(f'{path}: the name must end with {" or ".join(OUT_SUFFIXES)}')
    if path.exists() and not overwrite:
        raise CheckpointError(f'{path} is there already; choose another name or pass --overwrite')
    path.parent.mkdir(parents=True, exist_ok=True)
    tensors = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
    partial = path.with_name(f'.{path.name}.partial')
    if path.suffix == '.safetensors':
        from safetensors.torch import save_file

        save_file(tensors, partial)
    else:
        torch.save({wrapper: tensors} if wrapper else tensors, partial)
    os.replace(partial, path)


def convert(src: str | Path, dst: str | Path, to: str, overwrite: bool = False) -> list[str]:
    """Convert a ViT of any known layout, with a classifier's heads.

    Args:
        to: 'mmlape' (our names), 'timm' (LayerScale as timm has it) or 'lape' (the official file: under ``model``).

    Returns:
        Names of the source that were left out (detection heads and the like).

    Raises:
        CheckpointError: if the target has no place for something in the file.
    """
    if to not in TARGETS:
        raise CheckpointError(f'unknown target {to!r}; choose one of: {", ".join(TARGETS)}')
    weights = translate(state_dict_of(read_checkpoint(src), src), src)
    _check_target(weights, to, src)
    tensors = {**weights.tensors, **weights.heads}
    if to == 'timm':
        tensors = {re.sub(r'\.gamma([12])$', r'.ls\1.gamma', name): value for name, value in tensors.items()}
    write_tensors(tensors, dst, 'model' if to == 'lape' else None, overwrite)
    return weights.dropped


def _check_target(weights: Weights, to: str, src: str | Path) -> None:
    reasons = []
    if to != 'mmlape':
        reasons += ['ViT-Adapter parts'] if weights.layout == 'vit-adapter' else []
        reasons += [f'Dual PatchNorm ({weights.patch_norm})'] if weights.patch_norm != 'none' else []
    if to == 'timm' and (weights.joining != 'default' or not weights.pe_names):
        reasons += [f'the PE joining ({weights.joining})']
    if to == 'lape' and weights.has(r'blocks\.0\.gamma1$'):
        reasons += ['LayerScale']
    if reasons:
        raise CheckpointError(f'{src}: the {to} layout has no place for {", ".join(reasons)}; use --to mmlape')


def average(files: Sequence[str | Path], dst: str | Path, overwrite: bool = False) -> None:
    """Average the weights of several checkpoints of one model in float64; integer counters are the last file's.

    Raises:
        CheckpointError: with fewer than two files, or if names or shapes differ.
    """
    if len(files) < 2:
        raise CheckpointError('averaging weights needs at least two checkpoints')
    first, sums = None, {}
    for path in files:
        tensors = state_dict_of(read_checkpoint(path), path)
        shapes = {name: value.shape for name, value in tensors.items()}
        first = first or shapes
        if shapes != first:
            different = sorted(set(shapes.items()) ^ set(first.items()))[:3]
            raise CheckpointError(f'{path} and {files[0]} are not of one model; they differ in {different}')
        for name, value in tensors.items():
            sums[name] = value.double() + sums.get(name, 0) if value.is_floating_point() else value
    mean = {
        name: (sums[name] / len(files)).to(value.dtype) if value.is_floating_point() else sums[name]
        for name, value in tensors.items()
    }
    write_tensors(mean, dst, 'state_dict', overwrite)


def publish(src: str | Path, dst: str | Path, weights: str = 'plain') -> tuple[Path, Path]:
    """Strip everything but the weights, put the hash into the name, and write a model card beside it.

    Args:
        dst: name without hash, for example ``weights/deit-tiny-lape.pth``.
        weights: 'plain' for those that were trained, or 'ema' for their average that MMEngine's EMAHook keeps.

    Returns:
        The file and its card.

    Raises:
        CheckpointError: if there are no such weights.
    """
    content = read_checkpoint(src)
    if weights == 'ema' and 'ema_state_dict' not in content:
        raise CheckpointError(f'{src}: no EMA weights in it; train with EMAHook, or publish the plain weights')
    if weights == 'plain' and 'ema_state_dict' in content:
        # EMAHook saves the average as the model's weights, and under this name the plain ones
        content = {'state_dict': content['ema_state_dict']}
    tensors = {name.removeprefix('module.'): value for name, value in state_dict_of(content, src).items()}
    tensors.pop('steps', None)  # EMAHook's own counter
    dst = Path(dst)
    write_tensors(tensors, dst, 'state_dict', overwrite=True)
    named = dst.with_name(f'{dst.stem}-{sha256(dst)[:8]}{dst.suffix}')
    os.replace(dst, named)
    card = named.with_suffix('.md')
    card.write_text(_card(named, Path(src), weights, tensors))
    return named, card


def _card(file: Path, src: Path, weights: str, tensors: dict[str, Tensor]) -> str:
    """The model card: what it is, its hash, and the records of the run that stand beside the source."""
    total = sum(value.numel() for value in tensors.values() if value.is_floating_point())
    lines = [f'# {file.stem}', '', f'- file: `{file.name}`', f'- SHA-256: `{sha256(file)}`']
    lines += [f'- values: {total:,}', f'- weights: {weights}', f'- made from: `{src}`']
    for name in ('run.json', 'metrics.json'):
        record = src.parent / name
        if record.is_file():
            lines += ['', f'## {name}', '', '```json', record.read_text().strip(), '```']
    for config in sorted(src.parent.glob('*.py'))[:1]:
        lines += ['', f'## {config.name}', '', '```python', config.read_text().strip(), '```']
    return '\n'.join(lines) + '\n'
