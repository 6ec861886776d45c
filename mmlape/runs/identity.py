"""The identity of a run: what must be equal before two runs are averaged, or one is resumed from another.

``run.json`` holds the identity. Its ``settings_sha256`` is the hash of ``settings.json`` beside it, so that a
difference can be named key by key. docs/experiments.md lists what counts.
"""

import hashlib
import json
import subprocess
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import mmlape
from mmlape.environment.packages import PACKAGES, installed
from mmlape.runs.paper_model import paper_model
from mmlape.runs.record import read_record
from mmlape.runs.settings import digest, leaves, named_differences, precision, settings

SETTINGS = 'settings.json'
_AFTERWARDS = ('analysis', 'commands', 'environment', 'experiments', 'cli.py')
"""Parts of this package that start runs or read their results."""
_OTHERS = ('numpy', 'pycocotools', 'deformops')


def collect(cfg: dict, seed: int | None, world_size: int, total_batch: int, batch_policy: str) -> dict:
    """Return the identity of a run.

    Args:
        cfg: The configuration that is trained, before the trainer completes it.
        seed: None if it is not known yet.
        world_size: Number of processes.
        total_batch: Images of one optimiser step.
        batch_policy: 'recipe', 'unknown', 'auto-scale-lr', 'accumulate' or 'allow-batch-mismatch'.

    Returns:
        ``settings_sha256``, ``seed``, ``world_size``, ``total_batch``, ``amp``, ``batch_policy``,
        ``checkpoint``, ``loads`` (the keys that name it), ``code`` (``version``, ``source``: hash of the package's
        modules, ``commit``), ``stack``, ``paper`` (what the papers call the model), and ``settings``, which a record
        does not keep.
    """
    checkpoints, content = dict(checkpoint_keys(cfg)), settings(cfg)
    identity = dict(
        settings_sha256=digest(content),
        seed=seed,
        world_size=world_size,
        total_batch=total_batch,
        amp=precision(cfg),
        batch_policy=batch_policy,
        checkpoint=joined_digest(checkpoints.values()),
        loads=list(checkpoints),
        code=dict(version=mmlape.__version__, source=source_digest(), commit=commit()),
        stack=stack_versions(),
        settings=content,
    )
    return dict(identity, paper=vars(paper_model('', identity)))


def joined_digest(paths: Iterable[str]) -> dict | None:
    """Return ``name`` and ``sha256`` of checkpoints, joined by ' + '; None if there are none."""
    digests = [checkpoint_digest(path) for path in dict.fromkeys(paths)]
    if not digests:
        return None
    known = all(digest['sha256'] for digest in digests)
    return dict(
        name=' + '.join(digest['name'] for digest in digests),
        sha256=' + '.join(digest['sha256'] for digest in digests) if known else None,
    )


def checkpoint_keys(cfg: dict) -> Iterator[tuple[str, str]]:
    """Yield the dotted key and the path of every checkpoint that a run starts from, ``load_from`` first."""
    if cfg.get('load_from'):
        yield 'load_from', cfg['load_from']
    for key, value in leaves(cfg.get('model'), 'model'):
        if key.split('.')[-1] in ('checkpoint', 'teacher_checkpoint') and isinstance(value, str):
            yield key, value


def is_missing(checkpoint: str) -> bool:
    """Return whether a checkpoint is a path, not an address, and no file is there."""
    return '://' not in checkpoint and not Path(checkpoint).expanduser().is_file()


def checkpoint_digest(path: str | Path) -> dict:
    """Return ``name`` and ``sha256`` of a checkpoint's file; the hash is None if there is no such file here."""
    from mmlape.checkpoint.converting import sha256

    file = Path(path).expanduser()
    return dict(name=file.name, sha256=sha256(file) if file.is_file() else None)


@cache
def source_digest() -> str:
    """Return the SHA-256 over names and bytes of those modules of this package that can change a result."""
    root, total = Path(mmlape.__file__).parent, hashlib.sha256()
    for path in sorted(root.rglob('*.py')):
        name = path.relative_to(root)
        if name.parts[0] not in _AFTERWARDS and not name.parts[0].startswith('.'):
            total.update(f'{name}\0'.encode() + path.read_bytes() + b'\0')
    return total.hexdigest()


@cache
def commit() -> str | None:
    """Return the commit of the checkout that holds this package; None if it is installed, or git is not."""
    root = Path(mmlape.__file__).resolve().parents[1]
    command = ['git', '-C', str(root), 'rev-parse', '--show-toplevel', 'HEAD']
    try:
        lines = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.split('\n')
    except (OSError, subprocess.SubprocessError):
        return None
    return lines[1] if Path(lines[0]).resolve() == root else None


@cache
def stack_versions() -> dict[str, str]:
    """Return the installed versions of what computes: torch, the MM packages, timm, deformops, NumPy."""
    versions = {module: entry[1] for module in PACKAGES if (entry := installed(module))}
    for name in _OTHERS:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions


def read_identity(work_dir: str | Path) -> dict | None:
    """Return the identity in ``run.json``, with the ``settings`` beside it if they can be read; or None."""
    identity = (read_record(work_dir) or {}).get('identity')
    if not isinstance(identity, dict):
        return None
    try:
        content = json.loads((Path(work_dir) / SETTINGS).read_text(encoding='utf-8'))
    except (OSError, ValueError):
        return identity
    return dict(identity, settings=content) if digest(content) == identity.get('settings_sha256') else identity


def differences(mine: dict, other: dict, *, for_resume: bool) -> list[str]:
    """Return what keeps two runs apart, one line each, such as 'stack: torch 2.10 -> 2.11'.

    Args:
        mine: The identity of the existing run (``->`` points away from it). Where both have ``settings``, differing
            configurations are named key by key.
        other: The identity to compare it with.
        for_resume: Whether ``other`` resumes from ``mine``: seeds must then be equal, and the number of processes may
            change. Otherwise they are averaged: seeds must differ.
    """
    lines = []
    if mine.get('settings_sha256') != other.get('settings_sha256'):
        named = (
            named_differences(mine['settings'], other['settings'])
            if 'settings' in mine and 'settings' in other
            else []
        )
        lines += [f'config: {line}' for line in named] or ['config: other settings']
    if for_resume and mine.get('seed') != other.get('seed'):
        lines.append(f'seed: {mine.get("seed")} -> {other.get("seed")}')
    if not for_resume and mine.get('seed') == other.get('seed'):
        lines.append(f'seed: both have {mine.get("seed")}')
    for key in ('total_batch', 'batch_policy', 'amp') + (() if for_resume else ('world_size',)):
        if mine.get(key) != other.get(key):
            lines.append(f'{key}: {mine.get(key)} -> {other.get(key)}')
    lines += _other_weights(mine.get('checkpoint'), other.get('checkpoint'))
    return lines + software_differences(mine, other)


def software_differences(mine: dict, other: dict) -> list[str]:
    """Return the part of :func:`differences` that is about installed software: ``code`` and ``stack``."""
    code = [{key: (run.get('code') or {}).get(key) for key in ('version', 'source')} for run in (mine, other)]
    lines = []
    if code[0] != code[1]:
        same = code[0]['version'] == code[1]['version']
        what = 'other modules' if same else f'{code[0]["version"]} -> {code[1]["version"]}'
        commits = [(run.get('code') or {}).get('commit') for run in (mine, other)]
        where = f' (commit {commits[0][:9]} -> {commits[1][:9]})' if all(commits) and commits[0] != commits[1] else ''
        lines.append(f'code: mmlape {what}{where}')
    stacks = mine.get('stack') or {}, other.get('stack') or {}
    for name in dict.fromkeys([*stacks[0], *stacks[1]]):
        before, after = (stack.get(name, 'none') for stack in stacks)
        if before != after:
            lines.append(f'stack: {name} {before} -> {after}')
    return lines


def _other_weights(mine: dict | None, other: dict | None) -> list[str]:
    """Compare weights by their bytes, or by file name where a file is not here."""
    first, second = mine or {}, other or {}
    known = first.get('sha256') and second.get('sha256')
    if first.get('sha256') == second.get('sha256') if known else first.get('name') == second.get('name'):
        return []
    shown = [f'{run["name"]} ({(run["sha256"] or "not here")[:8]})' if run else 'none' for run in (first, second)]
    return [f'checkpoint: {shown[0]} -> {shown[1]}']
