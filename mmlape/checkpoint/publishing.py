"""Publish weights: the weights alone, what rebuilds their model, and nothing of the run."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from mmlape.checkpoint.metadata import Metadata, read_metadata
from mmlape.checkpoint.writing import write_tensors
from mmlape.errors import CheckpointError
from mmlape.files import sha256
from mmlape.weights import gate
from mmlape.weights.reading import AVERAGES, averages_only, read_checkpoint, require_finite, state_dict_of


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
    written = dst.with_name(f'.{dst.name}')  # a file at dst stays
    write_tensors(tensors, written, overwrite=True, metadata=metadata, config=config)
    return written.replace(dst.with_name(f'{dst.stem}-{sha256(written)[:8]}{dst.suffix}'))


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
