"""What a run is: everything that must be equal before two runs are averaged, or one goes on where another stopped.

``run.json`` holds the identity; ``settings.json`` beside it holds what its ``config`` is the hash of, so that a
difference can be named key by key.
"""

import hashlib
import json
import subprocess
from collections.abc import Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import mmlape
from mmlape.environment.packages import PACKAGES, installed
from mmlape.runs.record import read_record
from mmlape.runs.settings import digest, named_differences, settings

SETTINGS = 'settings.json'
BATCH_POLICIES = ('recipe', 'auto-scale-lr', 'accumulation', 'allowed-mismatch', 'unknown')

_AFTERWARDS = ('analysis', 'commands', 'environment', 'experiments', 'cli.py')
"""Parts of this package that start runs or look at their results."""
_OTHERS = ('numpy', 'pycocotools', 'deformops')


def collect(cfg: dict, seed: int | None, plan: dict, amp: str | None, batch_policy: str) -> dict:
    """The identity of a run.

    Args:
        cfg: The configuration that is trained, before the trainer completes it.
        seed: None if it is to be drawn.
        plan: As from :func:`mmlape.engine.batch.batch_plan`.
        amp: As from :func:`mmlape.runs.settings.precision`.
        batch_policy: One of ``BATCH_POLICIES``.

    Returns:
        ``config`` (hash of :func:`settings`), ``seed``, ``world_size``, ``total_batch``, ``amp``, ``batch_policy``,
        ``checkpoint``, ``code`` (``version``, ``source``: hash of the package's modules, ``commit``), ``stack``.
    """
    return dict(
        config=digest(settings(cfg)),
        seed=seed,
        world_size=plan['world_size'],
        total_batch=plan['total_batch'],
        amp=amp,
        batch_policy=batch_policy,
        checkpoint=checkpoint_of(cfg),
        code=dict(version=mmlape.__version__, source=source_digest(), commit=commit()),
        stack=stack_versions(),
    )


def checkpoint_of(cfg: dict) -> dict | None:
    """Which weights a run starts from: ``name`` and ``sha256``, joined by ' + ' where there are several; else None."""
    named = list(dict.fromkeys([*filter(None, [cfg.get('load_from')]), *_checkpoints(cfg.get('model'))]))
    if not named:
        return None
    digests = [checkpoint_digest(path) for path in named]
    known = all(one['sha256'] for one in digests)
    return dict(
        name=' + '.join(one['name'] for one in digests),
        sha256=' + '.join(one['sha256'] for one in digests) if known else None,
    )


def _checkpoints(node: Any) -> Iterator[str]:
    """Every checkpoint that a model's configuration names."""
    if isinstance(node, dict):
        for key in ('checkpoint', 'teacher_checkpoint'):
            if isinstance(node.get(key), str):
                yield node[key]
    for child in node.values() if isinstance(node, dict) else node if isinstance(node, list | tuple) else ():
        yield from _checkpoints(child)


def checkpoint_digest(path: str | Path) -> dict:
    """``name`` and ``sha256`` of a checkpoint's file; the hash is None where there is no such file here."""
    from mmlape.checkpoint.describing import sha256

    file = Path(path).expanduser()
    return dict(name=file.name, sha256=sha256(file) if file.is_file() else None)


@cache
def source_digest() -> str:
    """SHA-256 over the names and the bytes of this package's modules, of those that can change a result."""
    root, total = Path(mmlape.__file__).parent, hashlib.sha256()
    for path in sorted(root.rglob('*.py')):
        name = path.relative_to(root)
        if name.parts[0] not in _AFTERWARDS and not name.parts[0].startswith('.'):
            total.update(f'{name}\0'.encode() + path.read_bytes() + b'\0')
    return total.hexdigest()


@cache
def commit() -> str | None:
    """The commit of the checkout that this package lies in; None where it is installed, or git is not."""
    root = Path(mmlape.__file__).resolve().parents[1]
    words = ['git', '-C', str(root), 'rev-parse', '--show-toplevel', 'HEAD']
    try:
        said = subprocess.run(words, capture_output=True, text=True, timeout=10, check=True).stdout.split('\n')
    except (OSError, subprocess.SubprocessError):
        return None
    return said[1] if Path(said[0]).resolve() == root else None


@cache
def stack_versions() -> dict[str, str]:
    """Installed versions of what computes: torch, the MM packages, timm, deformops, NumPy."""
    found = {module: entry[1] for module in PACKAGES if (entry := installed(module))}
    for name in _OTHERS:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def read_identity(work_dir: str | Path) -> dict | None:
    """The identity in ``run.json``, with the ``settings`` beside it where they can be read; None if there is none."""
    identity = (read_record(work_dir) or {}).get('identity')
    if not isinstance(identity, dict):
        return None
    try:
        found = json.loads((Path(work_dir) / SETTINGS).read_text(encoding='utf-8'))
    except (OSError, ValueError):
        return identity
    return dict(identity, settings=found) if digest(found) == identity.get('config') else identity


def differences(mine: dict, other: dict, *, for_resume: bool) -> list[str]:
    """What keeps two runs apart, a line each, as 'stack: torch 2.10 -> 2.11'; empty if nothing does.

    Args:
        mine: The identity of the run that is there (``->`` points away from it). Where both have ``settings``, as
            from :func:`read_identity`, other configurations are named key by key.
        other: The identity to compare it with.
        for_resume: Whether ``other`` is to go on from ``mine``: seeds must then be equal, and the number of processes
            may change. Otherwise they are to be averaged: seeds must differ.
    """
    found = []
    if mine.get('config') != other.get('config'):
        named = (
            named_differences(mine['settings'], other['settings'])
            if 'settings' in mine and 'settings' in other
            else []
        )
        found += [f'config: {line}' for line in named] or ['config: other settings']
    if for_resume and mine.get('seed') != other.get('seed'):
        found.append(f'seed: {mine.get("seed")} -> {other.get("seed")}')
    if not for_resume and mine.get('seed') == other.get('seed'):
        found.append(f'seed: both have {mine.get("seed")}')
    for key in ('total_batch', 'batch_policy', 'amp') + (() if for_resume else ('world_size',)):
        if mine.get(key) != other.get(key):
            found.append(f'{key}: {mine.get(key)} -> {other.get(key)}')
    found += _other_weights(mine.get('checkpoint'), other.get('checkpoint'))
    return found + software_differences(mine, other)


def software_differences(mine: dict, other: dict) -> list[str]:
    """The part of :func:`differences` that another machine's installation explains: ``code`` and ``stack``."""
    code = [{key: (run.get('code') or {}).get(key) for key in ('version', 'source')} for run in (mine, other)]
    found = []
    if code[0] != code[1]:
        same = code[0]['version'] == code[1]['version']
        what = 'other modules' if same else f'{code[0]["version"]} -> {code[1]["version"]}'
        commits = [(run.get('code') or {}).get('commit') for run in (mine, other)]
        where = f' (commit {commits[0][:9]} -> {commits[1][:9]})' if all(commits) and commits[0] != commits[1] else ''
        found.append(f'code: mmlape {what}{where}')
    stacks = mine.get('stack') or {}, other.get('stack') or {}
    for name in dict.fromkeys([*stacks[0], *stacks[1]]):
        one, two = (stack.get(name, 'none') for stack in stacks)
        if one != two:
            found.append(f'stack: {name} {one} -> {two}')
    return found


def _other_weights(mine: dict | None, other: dict | None) -> list[str]:
    """Equal bytes are equal weights; where a file is not here, its name has to do."""
    one, two = mine or {}, other or {}
    known = one.get('sha256') and two.get('sha256')
    if one.get('sha256') == two.get('sha256') if known else one.get('name') == two.get('name'):
        return []
    shown = [f'{run["name"]} ({(run["sha256"] or "not here")[:8]})' if run else 'none' for run in (one, two)]
    return [f'checkpoint: {shown[0]} -> {shown[1]}']
