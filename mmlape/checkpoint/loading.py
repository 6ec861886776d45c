"""Load weights into a model exactly, and say what happened: one report, and an error for everything unexplained."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from mmengine.logging import print_log
from torch import Tensor, nn

from mmlape.checkpoint.key_maps import ADAPTER_PARTS, Weights, translate
from mmlape.checkpoint.reading import read_checkpoint, state_dict_of
from mmlape.errors import CheckpointError, ConfigError
from mmlape.models.position.kinds import Grid, absolute_table, resize_absolute


@dataclass
class LoadReport:
    """What loading did.

    Attributes:
        path: the file.
        layout: the recognised layout.
        loaded: names that got the checkpoint's values.
        total: how many tensors the model has.
        new: names that keep their initial values, and may.
        dropped: names of the checkpoint that are not wanted here.
        resized: name to 'from -> to'.
        problems: what strict loading refuses.
    """

    path: str
    layout: str
    total: int = 0
    loaded: list[str] = field(default_factory=list)
    new: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    resized: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [f'checkpoint {self.path} ({self.layout} layout): loaded {len(self.loaded)} of {self.total}']
        lines += [f'  resized {name}: {how}' for name, how in self.resized.items()]
        lines += [f'  new: {_summary(self.new)}'] if self.new else []
        lines += [f'  dropped: {_summary(self.dropped)}'] if self.dropped else []
        lines += [f'  problem: {problem}' for problem in self.problems]
        return '\n'.join(lines)


def _summary(names: list[str]) -> str:
    """Names with layer numbers folded: 'blocks.*.gamma1 (12)'."""
    groups: dict[str, int] = {}
    for name in names:
        key = re.sub(r'\.\d+\.', '.*.', name)
        groups[key] = groups.get(key, 0) + 1
    return ', '.join(key if count == 1 else f'{key} ({count})' for key, count in groups.items())


def load_backbone(
    model: nn.Module,
    checkpoint: str,
    grid: Grid | None = None,
    strict: bool = True,
    allow_joining_mismatch: bool = False,
) -> LoadReport:
    """Load a ViT of any known layout into ``VisionTransformer`` or ``ViTAdapter``.

    Heads are dropped, class and distillation tokens (and their PE rows) are kept or dropped as the model needs, an
    absolute PE is resized to the model's grid. What else does not fit is an error.

    Args:
        grid: (rows, columns) of the stored PE, needed when it is not square.
        strict: refuse missing, unexpected and misshapen tensors; otherwise they are only reported.
        allow_joining_mismatch: load a checkpoint trained with LaPE into a model without it, or the reverse.

    Returns:
        The report, which is logged too.

    Raises:
        CheckpointError: for an unreadable file, an unknown layout, no match at all, or anything strict refuses.
    """
    weights = translate(state_dict_of(read_checkpoint(checkpoint), checkpoint), checkpoint)
    report = LoadReport(str(checkpoint), weights.layout, dropped=[*weights.heads, *weights.dropped])
    _check_joining(model, weights, checkpoint, allow_joining_mismatch)
    tensors = _fit(model, weights, report, grid)
    _load(model, tensors, report, lambda name: _may_be_new(name, weights, allow_joining_mismatch), strict)
    return report


def load_init_cfg(model: nn.Module, cfgs: list[dict]) -> LoadReport:
    """``load_backbone`` with what an ``init_cfg`` of type 'Pretrained' says.

    Raises:
        ConfigError: for keys that ``load_backbone`` does not know, or several initialisations at once.
    """
    options = {key: value for key, value in cfgs[0].items() if key != 'type'}
    known = ('checkpoint', 'grid', 'strict', 'allow_joining_mismatch')
    unknown = [key for key in options if key not in known]
    if len(cfgs) > 1:
        raise ConfigError(f'init_cfg: a checkpoint fills the whole backbone, so it is one dict, not {len(cfgs)}')
    if unknown or not options.get('checkpoint'):
        what = f'does not know {", ".join(unknown)}' if unknown else 'names no checkpoint'
        hint = "; a prefix such as 'backbone.' is found without it" if 'prefix' in unknown else ''
        raise ConfigError(f'init_cfg of a backbone {what}: its keys are type, {", ".join(known)}{hint}')
    return load_backbone(model, **options)


def load_model(model: nn.Module, path: str, strict: bool = True) -> LoadReport:
    """Load a checkpoint of the same whole model (detector, segmentor, classifier), for testing it.

    Raises:
        CheckpointError: for an unreadable file, no match at all, or, if ``strict``, any difference.
    """
    return fill_model(model, read_checkpoint(path), path, strict)


def fill_model(model: nn.Module, content: Mapping, path: str, strict: bool = True) -> LoadReport:
    """The same with what ``read_checkpoint`` has read from ``path``."""
    report = LoadReport(str(path), 'whole model')
    _load(model, state_dict_of(content, path), report, lambda name: False, strict)
    return report


def _load(model: nn.Module, tensors: dict[str, Tensor], report: LoadReport, may_be_new, strict: bool) -> None:
    wanted = model.state_dict()
    report.total = len(wanted)
    matching = {}
    for name, value in tensors.items():
        if name not in wanted:
            report.problems.append(f'unexpected: {name} {tuple(value.shape)}')
        elif wanted[name].shape != value.shape:
            shapes = f'{tuple(value.shape)} in the file, {tuple(wanted[name].shape)} in the model'
            report.problems.append(f'wrong shape: {name} is {shapes}')
        else:
            matching[name] = value
    for name in wanted:
        if name in tensors:
            continue
        if may_be_new(name):
            report.new.append(name)
        else:
            report.problems.append(f'missing: {name}')
    report.loaded = list(matching)
    if not matching:
        raise CheckpointError(
            f'checkpoint {report.path}: none of its {len(tensors)} tensors fits the model; the file has '
            f'{sorted(tensors)[:3]}..., the model {list(wanted)[:3]}...'
        )
    if report.problems and strict:
        shown = '\n  '.join(report.problems[:12])
        more = f'\n  ... and {len(report.problems) - 12} more' if len(report.problems) > 12 else ''
        raise CheckpointError(
            f'checkpoint {report.path} does not fit the model:\n  {shown}{more}\n'
            'use the configuration it was trained with, or pass strict=False to load what fits'
        )
    model.load_state_dict(matching, strict=False)
    print_log(str(report), logger='current')


def _check_joining(model: nn.Module, weights: Weights, path: str, allowed: bool) -> None:
    stored, wanted = weights.joining == 'lape', model.joining.with_norm
    if stored == wanted or allowed or model.pe_type == 'none':
        return
    if stored:
        text = f'was trained with LaPE, but the model has pe_joining={model.pe_joining!r}: its PE norms would be lost'
    else:
        text = f'was trained without LaPE, but the model has pe_joining={model.pe_joining!r}: PE norms would be new'
    raise CheckpointError(
        f'checkpoint {path} {text}, and its weights have learnt another attention input. Set the pe_joining that it '
        'was trained with, or pass allow_joining_mismatch=True in init_cfg to fine-tune from it all the same'
    )


def _may_be_new(name: str, weights: Weights, joining_mismatch: bool) -> bool:
    if name.startswith(ADAPTER_PARTS):
        return weights.layout != 'vit-adapter'
    if re.search(r'\.gamma[12]$', name):
        return not weights.has(r'blocks\.\d+\.gamma[12]$')
    return joining_mismatch and weights.joining != 'lape' and '.pe_norm.' in name


def _fit(model: nn.Module, weights: Weights, report: LoadReport, grid: Grid | None) -> dict[str, Tensor]:
    """Take from the checkpoint what this model has no place for, and resize its PE."""
    tensors = dict(weights.tensors)
    own_tokens = model.prefix_tokens[: model.num_prefix]
    for name in (*weights.prefix_tokens, *weights.pe_names):
        unwanted = name not in own_tokens if name in weights.prefix_tokens else name not in model.pe_names
        if unwanted and (name in weights.prefix_tokens or model.pe_type == 'none'):
            report.dropped.append(name)
            del tensors[name]
    unwanted = [] if model.norm is not None else ['norm.weight', 'norm.bias']
    if not model.joining.with_norm:  # only reached when the mismatch is allowed
        unwanted += [name for name in tensors if '.pe_norm.' in name]
    for name in unwanted:
        if tensors.pop(name, None) is not None:
            report.dropped.append(name)
    for name in weights.pe_names:
        if name in model.pe_names:
            tensors[name] = _fit_table(model, name, tensors[name], weights, report, grid)
    return tensors


def _fit_table(model, name: str, table: Tensor, weights: Weights, report: LoadReport, grid: Grid | None) -> Tensor:
    """Rows of the prefix tokens that the model keeps, then the patches on the model's grid."""
    table = table[None] if table.ndim == 2 else table
    stored = weights.prefix_tokens or (('cls_token',) if weights.layout == 'vit-adapter' else ())
    patches = table.shape[1] - len(stored)
    source = grid or _square(patches, name, stored, report.path)
    if source[0] * source[1] != patches:
        raise CheckpointError(
            f'checkpoint {report.path}: {name} has {patches} patch rows, which is not the grid {source[0]}x{source[1]}'
        )
    if model.pe_type.startswith('sincos'):
        formula = absolute_table(model.pe_type, source, table.shape[2], len(stored))
        if not torch.allclose(table.float(), formula, atol=1e-3):
            report.problems.append(f'wrong PE: {name} is not the table of pe_type={model.pe_type!r}')
    resized = resize_absolute(table, source, model.grid, len(stored), model.interpolate_mode)
    if source != model.grid:
        report.resized[name] = f'{source[0]}x{source[1]} -> {model.grid[0]}x{model.grid[1]}'
    wanted = model.prefix_tokens[: model.pe_prefix]
    rows = {token: resized[:, i : i + 1] for i, token in enumerate(stored)}
    zeros = resized.new_zeros(1, 1, resized.shape[2])
    missing = [token for token in wanted if token not in rows]
    if missing and model.num_prefix:
        report.problems.append(f'missing: the rows of {", ".join(missing)} in {name}')
    prefix = [rows.get(token, zeros) for token in wanted]
    report.dropped += [f'{name}[{token}]' for token in stored if token not in wanted]
    return torch.cat((*prefix, resized[:, len(stored) :]), dim=1)


def _square(patches: int, name: str, stored: tuple[str, ...], path: str) -> Grid:
    side = math.isqrt(max(patches, 0))
    if side * side != patches:
        raise CheckpointError(
            f'checkpoint {path}: {name} has {patches} rows beside those of {stored or "no prefix token"}, which is no '
            'square grid; pass grid=(rows, columns) in init_cfg'
        )
    return side, side
