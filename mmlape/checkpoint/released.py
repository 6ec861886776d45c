"""Load complete detectors and segmentors of other code: their heads, and their backbones by their adapters."""

from typing import Any

from torch import nn

from mmlape.checkpoint.heads import DERIVED, PARTS, first_of_heads, kind_of_head, rename_heads
from mmlape.checkpoint.key_maps import Tensors, recognise
from mmlape.checkpoint.load_options import LoadOptions
from mmlape.checkpoint.metadata import parts_with_adapter
from mmlape.errors import CheckpointError
from mmlape.weights.load_report import LoadReport, summary_of_resized


def fit_released(
    model: nn.Module, stored: Tensors, options: LoadOptions, report: LoadReport
) -> tuple[Tensors, list[str]]:
    """Translate the tensors of a complete model that other code has written.

    The heads get today's names; the backbones are read as ``load_backbone`` reads them, where that makes them fit
    exactly. Where the file holds no layer of a backbone, the file that its ``init_cfg`` names is loaded.

    Args:
        model: The model.
        stored: The file's tensors.
        options: How a backbone's checkpoint is loaded.
        report: Gets what was renamed and dropped.

    Returns:
        The tensors under the model's names, and names of tensors that were loaded from a backbone's file instead.

    Raises:
        CheckpointError: If the file holds a head without its backbone, and ``init_cfg`` names no file of that.
    """
    names_of_model = set(model.state_dict())
    renamed, source = rename_heads({name: value for name, value in stored.items() if name not in names_of_model})
    tensors = {name: value for name, value in stored.items() if name in names_of_model} | renamed
    derived = [name for name in tensors if name.endswith(DERIVED) and name not in names_of_model]
    report.dropped += derived
    tensors = {name: value for name, value in tensors.items() if name not in derived}
    elsewhere: list[str] = []
    for name, backbone in parts_with_adapter(model).items():
        if name and any(key.startswith(PARTS) for key in tensors):
            tensors, lent = _fit_backbone(name, backbone, tensors, options, report)
            elsewhere += lent
    if source:
        count = sum(name not in stored for name in tensors)
        report.renamed = f'{count} tensors, from the names of {source}'
    return tensors, elsewhere


def _fit_backbone(
    name: str, backbone: Any, tensors: Tensors, options: LoadOptions, report: LoadReport
) -> tuple[Tensors, list[str]]:
    """Give a backbone's tensors its own names, or load it from the file that its ``init_cfg`` names."""
    prefix = f'{name}.'
    stored = {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}
    wanted = {key: value.shape for key, value in backbone.state_dict().items()}
    if set(stored) == set(wanted):
        return tensors, []
    first = backbone.layer_names[0]
    if not any(key.startswith(first) for key in wanted if key in stored) and set(stored) <= set(wanted):
        return tensors, _load_elsewhere(name, backbone, set(stored), report)
    fitted, report_of_part = _translated(backbone, stored, options, report.path)
    if {key: value.shape for key, value in fitted.items()} != wanted:
        return tensors, []  # strict loading names what does not fit
    report.problems += report_of_part.problems
    if report_of_part.resized:
        report.problems.append(f'wrong img_size of {name}, for which it {summary_of_resized(report_of_part.resized)}')
    report.dropped += [prefix + key for key in report_of_part.dropped]
    rest = {key: value for key, value in tensors.items() if not key.startswith(prefix)}
    return rest | {prefix + key: value for key, value in fitted.items()}, []


def _translated(backbone: Any, stored: Tensors, options: LoadOptions, path: str) -> tuple[Tensors, LoadReport]:
    """Return a file's tensors as a backbone's checkpoint adapter fits them to it; none if it does not know them."""
    adapter, report = backbone.checkpoint_adapter, LoadReport(path, '')
    try:
        weights = recognise({'state_dict': stored}, adapter.layouts(type(backbone)), path)
        return adapter.fit(backbone, weights, options, report), report
    except CheckpointError:
        return {}, report


def _load_elsewhere(name: str, backbone: Any, stored: set[str], report: LoadReport) -> list[str]:
    """Load a backbone from the file that its ``init_cfg`` names; return the names that a complete file lacks."""
    without = (
        f'checkpoint {report.path}: a head without its {name}, whose file the config does not '
        f'name: pass --cfg-options model.{name}.init_cfg.type=Pretrained '
        f'model.{name}.init_cfg.checkpoint=FILE'
    )
    if not backbone.init_cfg:
        raise CheckpointError(without)
    backbone.init_weights()
    if backbone.load_report is None:
        raise CheckpointError(without)
    names = [f'{name}.{key}' for key in backbone.load_report.loaded if key not in stored]
    report.notes.append(f'{len(names)} tensors of the {name} are those of {backbone.load_report.path}')
    return names


def inspecting(stored: Tensors, path: str) -> str:
    """Say what tells the configuration of a released complete model; '' for other files."""
    complete = any(name.startswith(PARTS) for name in stored)
    return f'; mmlape checkpoint inspect {path} prints its backbone, and the config to use' if complete else ''


def head_mismatch(stored: Tensors, model: nn.Module) -> str:
    """Say that the heads of a file are of another kind than the model's; '' if they are not, or there are none."""
    names = [name for name in stored if name.startswith(PARTS)]
    names_of_model = list(model.state_dict())
    theirs, ours = kind_of_head(names), kind_of_head(names_of_model)
    if not set(names) - set(names_of_model) or (theirs is ours and theirs is not None):
        return ''
    head = theirs.name if theirs else f'of no known layout (first name: {first_of_heads(names)})'
    return f'; its head is {head}, and the model has {ours.name if ours else "another one"}'
