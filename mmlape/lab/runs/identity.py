"""The identity of a run: what must be equal before two runs are averaged, or one is resumed from another.

``run.json`` holds the identity. Its ``settings_sha256`` is the hash of ``settings.json`` beside it,
so that a difference can be named key by key: of the part of the configuration that decides results,
without what may differ by machine. docs/understand/runs.md lists what counts. Train batch,
precision and the bytes of checkpoints are compared apart.
"""

import hashlib
import json
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import mmlape
from mmlape.errors import CheckpointError, DataError
from mmlape.files import read_json, sha256
from mmlape.lab.datasets.fraction import data_fraction
from mmlape.lab.decoding import encode
from mmlape.lab.environment import PACKAGES, installed
from mmlape.lab.extension import PaperModel, Provenance, first_answer
from mmlape.lab.recipe import OF_PRECISION, PRECISIONS, Recipe
from mmlape.lab.registry import TYPES, is_one_type
from mmlape.lab.runs.code import code_differences, source_hash
from mmlape.lab.runs.schema import RECORD, SETTINGS, Code, Identity, RunRecord, StartWeights, read_record

COUNTED = (
    'default_scope', 'model', 'data_preprocessor', 'train_dataloader', 'val_dataloader', 'val_evaluator', 'train_cfg',
    'val_cfg', 'optim_wrapper', 'param_scheduler', 'load_fresh', 'load_strict', 'sync_bn',
    'efficient_conv_bn_eval', 'cache_features',
)  # fmt: skip
"""Keys at the top of a configuration that count."""
IGNORED = {
    'num_workers', 'persistent_workers', 'pin_memory', 'prefetch_factor', 'timeout', 'collect_device', 'collect_dir',
    'outfile_prefix', 'with_cp', 'cache_dir', 'checkpoint', 'teacher_checkpoint', 'use_deterministic_algorithms',
}  # fmt: skip
"""Keys below them that do not count, wherever they are."""
INTERVAL = 'train_cfg.val_interval '
PREFIX_SCOPE = ('_scope_', 'mmlape')
"""The key and value that MMEngine adds to what a base has that was read as ``mmlape::...``."""


def settings(recipe: Recipe) -> dict:
    """Return the part of a configuration that decides results, as JSON values."""
    cfg = dict(recipe.cfg.items())
    named = [value for key, value in leaves(cfg) if key.split('.')[-1] == 'data_root' and isinstance(value, str)]
    roots = sorted({root.rstrip('/') for root in named} - {''}, key=len, reverse=True)
    kept = {key: cfg[key] for key in COUNTED if cfg.get(key) is not None}
    fraction = data_fraction(cfg)
    if fraction:
        kept['data_fraction'] = dict(share=str(fraction.share), seed=fraction.seed)
    if recipe.scales_rate:
        kept['auto_scale_lr'] = dict(base_batch_size=recipe.base_batch)
    if recipe.randomness.get('diff_rank_seed') is False:
        kept['randomness'] = dict(diff_rank_seed=False)
    hooks = [part.cfg for part in recipe.custom_hooks if getattr(part.cls, 'changes_results', True)]
    kept = _plain(dict(kept, custom_hooks=hooks) if hooks else kept, roots)
    kept.get('train_dataloader', {}).pop('batch_size', None)
    wrapper = kept.get('optim_wrapper', {})
    if recipe.wrapper.name in PRECISIONS:
        for key in OF_PRECISION:
            wrapper.pop(key, None)
    if wrapper.get('accumulative_counts') == 1:
        del wrapper['accumulative_counts']
    return kept


def _plain(node: Any, roots: list[str]) -> Any:
    """Return ``node`` as JSON values, without what may differ and with data roots as ``DATA``."""
    if isinstance(node, dict):
        # MMEngine adds this scope to a base read as `mmlape::...`; mmlape/registry.py says why it
        # has no meaning
        kept = {key: child for key, child in node.items() if key not in IGNORED and (key, child) != PREFIX_SCOPE}
        return {str(key): _plain(child, roots) for key, child in kept.items()}
    if isinstance(node, list | tuple):
        return [_plain(child, roots) for child in node]
    if isinstance(node, str):
        root = next((root for root in roots if node == root or node.startswith(f'{root}/')), None)
        return node if root is None else ('DATA' + node[len(root) :]).rstrip('/')
    if node is None or isinstance(node, bool | int | float):
        return node
    if callable(node):
        return f'{node.__module__}.{node.__qualname__}'
    return str(node)


def digest(content: Any) -> str:
    """Return the SHA-256 of a value's JSON; the order of keys does not count."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def named_differences(mine: dict, other: dict) -> list[str]:
    """Return the differences of two results of :func:`settings`, such as 'train_cfg.max_iters 3 -> 4'.

    Another spelling of a type is none.
    """
    old, new = dict(leaves(mine)), dict(leaves(other))
    keys = [key for key in dict.fromkeys([*old, *new]) if old.get(key, ...) != new.get(key, ...)]
    types, scope = [key for key in keys if key.rpartition('.')[2] in TYPES], mine.get('default_scope')
    respelt = {key for key in types if is_one_type(old.get(key), new.get(key), scope)}
    keys = [key for key in keys if key not in respelt]
    return [f'{key} {_shown(old.get(key, ...))} -> {_shown(new.get(key, ...))}' for key in keys]


def _shown(value: Any) -> str:
    text = 'nothing' if value is ... else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f'{text[:57]}...'


def leaves(node: Any, key: str = '') -> Iterator[tuple[str, Any]]:
    """Yield the dotted keys and values of nested dicts, lists and tuples.

    An empty one is a value.
    """
    if not isinstance(node, dict | list | tuple) or not node:
        yield key, node
        return
    for name, child in node.items() if isinstance(node, dict) else enumerate(node):
        yield from leaves(child, f'{key}.{name}' if key else str(name))


_OTHERS = ('numpy', 'pycocotools', 'deformops')


def collect(
    recipe: Recipe, seed: int | None, world_size: int, total_batch: int, batch_policy: str, compiled: str | None = None
) -> Identity:
    """Return the identity of a run; the modules of its code are known once it has imported them.

    Args:
        recipe: What is trained, before the trainer completes its configuration.
        seed: None if it is not known yet.
        world_size: Number of processes.
        total_batch: Images of one optimiser step.
        batch_policy: 'recipe', 'unknown', 'auto-scale-lr', 'accumulate' or 'allow-batch-mismatch'.
        compiled: What of the model is compiled, see `mmlape.lab.training.compiling`; None for nothing.
    """
    checkpoints, content = dict(checkpoint_keys(recipe.cfg)), settings(recipe)
    identity = Identity(
        settings_sha256=digest(content),
        seed=seed,
        world_size=world_size,
        total_batch=total_batch,
        amp=recipe.precision,
        batch_policy=batch_policy,
        compiled=compiled,
        checkpoint=joined_digest(checkpoints.values()),
        loads=list(checkpoints),
        code=Code(version=mmlape.__version__, commit=commit()),
        stack=stack_versions(),
        settings=content,
    )
    return replace(identity, paper=paper_model('', identity))


def joined_digest(paths: Iterable[str]) -> StartWeights | None:
    """Return name and hash of checkpoints, joined by ' + '; None if there are none."""
    files = [Path(path).expanduser() for path in dict.fromkeys(paths)]
    if not files:
        return None
    name = ' + '.join(file.name for file in files)
    if not all(file.is_file() for file in files):
        return StartWeights(name=name)
    return StartWeights(name=name, sha256=' + '.join(map(sha256, files)))


def checkpoint_keys(cfg: dict) -> Iterator[tuple[str, str]]:
    """Yield the dotted key and the path of every checkpoint that a run starts from, ``load_from`` first."""
    if cfg.get('load_from'):
        yield 'load_from', cfg['load_from']
    for key, value in leaves(cfg.get('model'), 'model'):
        if key.split('.')[-1] in ('checkpoint', 'teacher_checkpoint') and isinstance(value, str):
            yield key, value


def is_missing(checkpoint: str) -> bool:
    """Return whether a checkpoint is a path, neither an address nor of the hub, and no file is there."""
    from mmlape.checkpoint.fetching import is_address, is_on_hub  # here, as a report needs no torch

    return not (is_address(checkpoint) or is_on_hub(checkpoint) or Path(checkpoint).expanduser().is_file())


@cache
def commit() -> str | None:
    """Return the commit of the checkout that holds this package.

    None if it is installed, or git is not.
    """
    root = Path(mmlape.__file__).resolve().parents[1]
    command = ['git', '-C', str(root), 'rev-parse', '--show-toplevel', 'HEAD']
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    top_level, head = done.stdout.split('\n')[:2]
    return head if Path(top_level).resolve() == root else None


@cache
def stack_versions() -> dict[str, str]:
    """Return the installed versions of what computes.

    Torch, the MM packages, timm, deformops, NumPy.
    """
    versions = {module: entry[1] for module in PACKAGES if (entry := installed(module))}
    for name in _OTHERS:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions


def with_settings(identity: Identity | None, work_dir: str | Path) -> Identity | None:
    """Return the identity of the run in a work dir with the settings beside it, if they are there.

    Raises:
        DataError: They cannot be read, or are another run's.
    """
    path = Path(work_dir) / SETTINGS
    fix = 'restore the file; or delete it, without which no difference of settings is named'
    content = read_json(path, fix=fix)
    if identity is None or content is None:
        return identity
    if digest(content) != identity.settings_sha256:
        raise DataError(f'{path} and {path.with_name(RECORD)} are of two runs: {fix}')
    return replace(identity, settings=content)


def read_identity(work_dir: str | Path) -> Identity | None:
    """Return the identity in ``run.json``, with its settings; None if there is none."""
    return with_settings((read_record(work_dir) or RunRecord()).identity, work_dir)


def planned_beside(planned: Identity, recorded: Identity) -> Identity:
    """Return the identity of a run that has not started, to be compared with one that has.

    What it will import is not known before; if it repeats or resumes the other, it will import the same. Its data are
    compared when they are read, before its first iteration.
    """
    modules = {name: source_hash(name) for name in recorded.code.modules}
    return replace(planned, code=replace(planned.code, modules=modules), data=recorded.data)


def differences(mine: Identity, other: Identity, *, for_resume: bool) -> list[str]:
    """Return what keeps two runs apart, one line each, such as 'stack: torch 2.10 -> 2.11'.

    Args:
        mine: The identity of the existing run (``->`` points away from it). Where both have
            ``settings``, differing configurations are named key by key.
        other: The identity to compare it with; of a run that is planned, see `planned_beside`.
        for_resume: Whether ``other`` resumes from ``mine``: seeds must then be equal, and the
            number of processes may change. Otherwise they are averaged: seeds must differ.
    """
    lines = []
    if mine.settings_sha256 != other.settings_sha256:
        if mine.settings is None or other.settings is None:
            lines.append('config: other settings')
        else:  # how often a run is validated may change on its way
            named = named_differences(mine.settings, other.settings)
            lines += [f'config: {line}' for line in named if not (for_resume and line.startswith(INTERVAL))]
    if for_resume and mine.seed != other.seed:
        lines.append(f'seed: {mine.seed} -> {other.seed}')
    if not for_resume and mine.seed == other.seed:
        lines.append(f'seed: both have {mine.seed}')
    compared = [
        ('total_batch', mine.total_batch, other.total_batch),
        ('batch_policy', mine.batch_policy, other.batch_policy),
        ('amp', mine.amp, other.amp),
    ]
    if not for_resume:
        compared.append(('world_size', mine.world_size, other.world_size))
        compared.append(('compiled', mine.compiled, other.compiled))
    lines += [f'{name}: {one} -> {two}' for name, one, two in compared if one != two]
    lines += _other_weights(mine.checkpoint, other.checkpoint)
    lines += data_differences(mine.data, other.data)
    return lines + software_differences(mine, other)


def software_differences(mine: Identity, other: Identity) -> list[str]:
    """Return the part of :func:`differences` that is about ``code`` and ``stack``."""
    lines = code_differences(mine.code, other.code)
    for name in dict.fromkeys([*mine.stack, *other.stack]):
        before, after = mine.stack.get(name, 'none'), other.stack.get(name, 'none')
        if before != after:
            lines.append(f'stack: {name} {before} -> {after}')
    return lines


def data_differences(mine: Mapping | None, other: Mapping | None) -> list[str]:
    """Return the part of :func:`differences` that is about the data; none where a record has not got them."""
    if mine is None or other is None:
        return []
    return [f'data: {line}' for line in named_differences(encode(mine), encode(other))]


def _other_weights(mine: StartWeights | None, other: StartWeights | None) -> list[str]:
    """Compare weights by their bytes, or by file name where a file is not here."""
    hashes = [one.sha256 if one else None for one in (mine, other)]
    names = [one.name if one else None for one in (mine, other)]
    first, second = hashes if all(hashes) else names
    if first == second:
        return []
    shown = [f'{run.name} ({(run.sha256 or "not here")[:8]})' if run else 'none' for run in (mine, other)]
    return [f'checkpoint: {shown[0]} -> {shown[1]}']


def recorded_model(name: str, identity: Identity | None) -> PaperModel:
    """Return the paper's name of a model as its run recorded it, or that of the settings in an older record."""
    paper = identity.paper if identity else None
    return replace(paper, name=paper.name or name) if paper else paper_model(name, identity)


def paper_model(name: str, identity: Identity | None) -> PaperModel:
    """Return the paper's name of a model, from the settings of a run.

    Args:
        name: The name if the settings are unknown, or the model has none.
        identity: As `read_identity` returns it.
    """
    settings = identity.settings if identity else None
    if not settings or not settings.get('model'):
        return PaperModel(name)
    weights = identity.checkpoint.name if identity.checkpoint else None
    answer = first_answer(lambda one: one.paper_model(name, settings, identity.loads, weights))
    return answer or PaperModel(name, weights or 'none')


NO_WEIGHTS = Provenance('no weights', distinct=True)


def known_provenance(name: str, digest: str | None) -> Provenance | None:
    """Return the provenance of a file that is known by its name or its SHA-256; None if it is not."""
    return first_answer(lambda one: one.provenance(name, digest))


def provenance(path: str | Path) -> Provenance | None:
    """Return the provenance of a file; None if nothing in it tells."""
    from mmlape.checkpoint.opening import open_file  # here, as a report needs no torch

    path = Path(path).expanduser()
    digest = sha256(path) if path.is_file() else None
    provenance = known_provenance(path.name, digest)
    if provenance:
        return provenance
    try:
        file = open_file(path, mmap=True)
    except CheckpointError:
        return None
    if {'mmengine_version', 'mmlape'} & set(file.meta):
        return Provenance('a run of mmlape or MMEngine')
    return first_answer(lambda one: one.provenance(path.name, digest, file.content))
