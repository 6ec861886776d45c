"""Load weights into a model exactly, and report what happened: an error for everything unexplained.

What of a file belongs into a backbone is the knowledge of its adapter
(``mmlape.models.base.checkpoint``).
"""

import logging
import os
from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from mmlape.checkpoint.exact_loading import (
    LoadOptions,
    LoadReport,
    below_prefix,
    fill,
    fit_channels,
    other_normalisation,
    require_grid,
    require_memory,
    unwrapped,
    without,
)
from mmlape.checkpoint.fetching import is_address, is_on_hub
from mmlape.checkpoint.heads import fit_released
from mmlape.checkpoint.key_maps import Tensors, recognise, whose_file
from mmlape.checkpoint.metadata import ambiguity, grid_in, mismatch, parts_with_adapter, read_metadata
from mmlape.checkpoint.opening import OpenedFile, open_file
from mmlape.checkpoint.trained_alone import OPTIONS, digest_of_tensors, find, frozen_parts
from mmlape.console.log import log
from mmlape.errors import CheckpointError, ConfigError

__all__ = [
    'LoadOptions',
    'LoadReport',
    'is_pretrained',
    'load_backbone',
    'load_model',
    'load_pretrained',
    'load_weights',
    'warn_of_normalisation',
]


def load_backbone(
    model: Any,
    checkpoint: str | os.PathLike | Mapping | OpenedFile,
    grid: int | tuple[int, int] | None = None,
    strict: bool = True,
    allow_joining_mismatch: bool = False,
    adapt_channels: bool = False,
) -> LoadReport:
    """Load a checkpoint of any known layout into a backbone of this package.

    Heads are dropped, class and distillation tokens (and their PE rows) are kept or dropped as the
    model needs, an absolute PE is resized to the model's grid. What else does not fit is an error.
    A file with the same keys that records another joining, PE or PE norm is loaded with a warning.

    Args:
        model: A backbone, or a complete model, that names its checkpoint adapter, also compiled,
            distributed or averaged.
        checkpoint: The file, or what ``read_checkpoint`` or ``state_dict()`` has returned.
        grid: (rows, columns) of the stored PE, needed when it is not square.
        strict: Refuse missing, unexpected and misshapen tensors; otherwise they are only reported.
        allow_joining_mismatch: Load a checkpoint trained with LaPE into a model without it, or the
            reverse; of files with the same keys, do not warn that they record another joining.
        adapt_channels: Fit filters for images of three channels, or of one, to the model's, as timm
            does: their sum for one channel, else repeated, times old over new channels.

    Returns:
        The report, which is logged too.

    Raises:
        CheckpointError: For an unreadable file, an unknown layout, no match at all, or anything
            strict refuses.
    """
    known = None if grid is None else require_grid(grid, 'grid')
    options = LoadOptions(known, allow_joining_mismatch, adapt_channels)
    with unwrapped(model) as inner:
        file = completed(open_file(checkpoint), inner)
        require_memory(inner, file.path)
        adapter = inner.checkpoint_adapter
        weights = recognise(file, adapter.layouts(type(inner)), inner)
        report = LoadReport(file.path, weights.layout, dropped=[*weights.head_tensors, *weights.dropped])
        report.normalisation = weights.normalisation
        tensors = fit_channels(adapter.fit(inner, weights, options, report), inner.state_dict(), options, report)
        _compare_record(inner, weights.recorded, options, report)
        fill(
            inner,
            tensors,
            report,
            strict,
            may_be_new=lambda name: adapter.may_be_new(inner, name, weights, options),
            hint=lambda: whose_file(file, inner),
        )
    return report


def _compare_record(model: Any, recorded: dict[str, Any], options: LoadOptions, report: LoadReport) -> None:
    """Report what a file records otherwise than the model has it, or leaves open."""
    different = mismatch(recorded, model.checkpoint_adapter.record(model))
    if different and options.allow_joining_mismatch:
        report.notes.append(different)
    elif different:
        report.warnings.append(f'{different}: its weights fit, but were trained as another function')
    elif not options.allow_joining_mismatch:
        report.notes += filter(None, [ambiguity(recorded, model)])


def load_weights(model: nn.Module, checkpoint: str | os.PathLike | Mapping, **options) -> LoadReport:
    """Load a checkpoint into a model exactly, and report what happened.

    Args:
        model: A backbone of this package takes files of every layout that it knows, as
            ``load_backbone`` does. Any other model takes files of the same model, as ``load_model``
            does. Either may be compiled, distributed or averaged, or have such modules.
        checkpoint: A file, an address, or a state dict.
        **options: Of that function, such as ``grid=(rows, columns)``, ``adapt_channels=True`` or
            ``strict=False``.

    Raises:
        CheckpointError: If the file cannot be read, or does not fit the model.
    """
    with unwrapped(model) as inner:
        if hasattr(inner, 'checkpoint_adapter'):
            return load_backbone(inner, checkpoint, **options)
        return load_model(inner, checkpoint, **options)


def is_pretrained(cfg: Mapping) -> bool:
    """Check whether an ``init_cfg`` names a checkpoint.

    MMEngine's 'Pretrained', by scoped name or by class.
    """
    kind = cfg.get('type')
    return getattr(kind, '__name__', str(kind)).rpartition('.')[2] in ('Pretrained', 'PretrainedInit')


def load_pretrained(model: Any) -> bool:
    """Load the checkpoint that a model's ``init_cfg`` names, once; return whether it names one.

    Raises:
        ConfigError: For keys that ``load_backbone`` does not know, or several initialisations at
            once.
    """
    cfgs = model.init_cfg if isinstance(model.init_cfg, list) else [model.init_cfg or {}]
    if not any(is_pretrained(cfg) for cfg in cfgs):
        return False
    if model.is_init:
        return True
    options = {key: value for key, value in cfgs[0].items() if key != 'type'}
    unknown = [key for key in options if key not in OPTIONS]
    if len(cfgs) > 1:
        raise ConfigError(f'init_cfg: a checkpoint fills the complete backbone, so it is one dict, not {len(cfgs)}')
    if unknown or not options.get('checkpoint'):
        what = f'does not know {", ".join(unknown)}' if unknown else 'names no checkpoint'
        raise ConfigError(f'init_cfg of a backbone {what}: its keys are type, {", ".join(OPTIONS)}')
    model.load_report, model.is_init = load_backbone(model, **options), True
    return True


def load_model(
    model: nn.Module,
    checkpoint: str | os.PathLike | Mapping | OpenedFile,
    strict: bool = True,
    resize: bool = False,
    fresh: Sequence[str] = (),
) -> LoadReport:
    """Load a checkpoint of the same complete model (detector, segmentor, classifier), for testing or fine-tuning it.

    If the file records another joining, PE or PE norm of a backbone, that is a difference too. A
    model that knows other layouts of its files takes those; released detectors and segmentors of
    other code are translated, see ``mmlape.checkpoint.heads``.

    Args:
        model: The model.
        checkpoint: The file, or what was read of it.
        strict: Refuse every difference; otherwise differences are only reported.
        resize: Resize the PE of another image size.
        fresh: Beginnings of the names of tensors that keep their initial values, such as
            ``head.layers.head.``, whether the file has them or not.

    Raises:
        CheckpointError: For an unreadable file, no match at all, or, if ``strict``, any difference.
    """
    with unwrapped(model) as inner:
        file = completed(open_file(checkpoint), inner)
        require_memory(inner, file.path)
        report = LoadReport(file.path, 'complete model')
        metadata = read_metadata(file)
        report.normalisation = metadata.normalisation
        report.warnings += filter(None, [other_normalisation(report, inner)])
        tensors = below_prefix(file.tensors, inner, report)
        for name, backbone in parts_with_adapter(inner).items():
            recorded = metadata.backbones.get(name, {})
            tensors = _resized(backbone, tensors, name, grid_in(recorded.get('grid')), resize, report)
            different = mismatch(recorded, backbone.checkpoint_adapter.record(backbone))
            if different:
                report.problems.append(f'wrong {name or "backbone"}: {different}')
            report.notes += filter(None, [ambiguity(recorded, backbone)])
        adapter: Any = getattr(inner, 'checkpoint_adapter', None)
        layouts = [layout for layout in adapter.layouts(type(inner)) if layout.complete] if adapter else []
        options, weights = LoadOptions(), recognise(file, layouts, inner) if layouts else None
        if weights:
            report.layout, tensors = weights.layout, adapter.fit(inner, weights, options, report)
        elif not metadata.backbones:
            tensors = fit_released(inner, tensors, options, report)

        def may_be_new(name: str) -> bool:
            return name.startswith(tuple(fresh)) or bool(weights and adapter.may_be_new(inner, name, weights, options))

        fill(
            inner,
            without(tensors, fresh, report),
            report,
            strict,
            may_be_new=may_be_new,
            fresh=fresh,
            hint=lambda: whose_file(file, inner),
        )
    return report


def completed(file: OpenedFile, model: nn.Module) -> OpenedFile:
    """Return a file with the frozen tensors that it lacks: a backbone loads them from the file that they are of.

    That is the one that the backbone's own ``init_cfg`` names, if it is there, else the recorded one.

    Args:
        file: The file; one that lacks nothing is returned as it is.
        model: Its model, or the backbone alone.

    Raises:
        CheckpointError: There is no such backbone or no such file, or the file has other tensors.
    """
    parts = frozen_parts(file)
    tensors = file.tensors if parts else {}
    for name, part in parts.items():
        backbones = parts_with_adapter(model)
        backbone = backbones.get(name) or backbones.get('')
        if backbone is None:
            raise CheckpointError(f'checkpoint {file.path}: was trained over a frozen {name}, which the model lacks')
        own = named_checkpoint(backbone)
        is_there = own and (is_on_hub(own) or is_address(own) or os.path.isfile(own))
        source = own if is_there else find(part.init_cfg['checkpoint'], file.path)
        if source is None:
            raise CheckpointError(
                f'checkpoint {file.path}: holds what was trained; its frozen {name} is that of '
                f"{part.init_cfg['checkpoint']}, which is not there: download it, or put it into the file's folder"
            )
        opened = open_file(source)
        if frozen_parts(opened):
            raise CheckpointError(f'checkpoint {file.path}: {source} lacks frozen tensors itself: give a complete one')
        load_backbone(backbone, **dict(part.init_cfg, checkpoint=opened))
        state = backbone.state_dict()
        missing = {key: value for key, value in state.items() if f'{name}.{key}' not in tensors}
        if (found := digest_of_tensors(missing)) != part.digest:
            raise CheckpointError(
                f'checkpoint {file.path}: was trained over another {name} than that of {source} (SHA-256 '
                f'{part.digest[:8]}, not {found[:8]}): give the file that it was trained over'
            )
        tensors |= {f'{name}.{key}': value for key, value in missing.items()}
    return OpenedFile(dict(state_dict=tensors, meta=file.meta), file.path) if parts else file


def named_checkpoint(backbone: Any) -> str | None:
    """Return the file that a backbone's ``init_cfg`` names; None if it names none."""
    cfg = backbone.init_cfg
    return cfg.get('checkpoint') if isinstance(cfg, Mapping) and is_pretrained(cfg) else None


def _resized(
    backbone: Any, tensors: Tensors, name: str, grid: tuple[int, int] | None, resize: bool, report: LoadReport
) -> Tensors:
    """Return tensors with the PE of the backbone of a name resized to its grid; or report what would have to be."""
    fitted = dict(tensors)
    resized = backbone.checkpoint_adapter.resize(backbone, fitted, f'{name}.' if name else '', grid)
    if resize:
        report.resized |= resized
        return fitted
    same = [key for key in resized if tensors[key].shape == fitted[key].shape]  # the shape tells the others
    report.problems += [f'wrong grid: {key}, which would have to be resized {resized[key]}' for key in same]
    return tensors


def warn_of_normalisation(model: nn.Module) -> None:
    """Warn if the checkpoints of a model's backbones want images normalised otherwise than the model does it."""
    for backbone in parts_with_adapter(model).values():
        warning = backbone.load_report and other_normalisation(backbone.load_report, model)
        if warning:
            log(f'checkpoint {backbone.load_report.path}: {warning}', logging.WARNING)
