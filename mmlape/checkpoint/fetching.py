"""Checkpoints named by an address.

Downloaded once, into the cache of torch.hub or of the Hugging Face hub.
"""

import contextlib
import hashlib
import os
import re
import socket
import sys
from http.client import HTTPException
from pathlib import Path
from urllib.parse import unquote, urlparse

import torch

from mmlape.console.log import log
from mmlape.errors import CheckpointError

TIMEOUT = 60
HUB = 'hf-hub:'
HUBS = ('hf://', HUB)
"""Before the name of a repository on the Hugging Face hub, 'hf://OWNER/NAME[@REVISION][/FILE]':
as the hub's client writes it, and as timm does."""
HUB_FILES = ('model.safetensors', 'pytorch_model.bin', 'open_clip_model.safetensors', 'open_clip_pytorch_model.bin')
"""Names of weights that are tried in turn; a repository without these has one other safetensors file."""
SAFETENSORS = '.safetensors'
_HASH = re.compile(r'-([0-9a-f]{8,64})\.')


def is_on_hub(checkpoint: object) -> bool:
    """Check whether a repository on the Hugging Face hub is named."""
    return isinstance(checkpoint, str) and checkpoint.startswith(HUBS)


def is_address(checkpoint: str | os.PathLike) -> bool:
    """Check whether a checkpoint is named by an address, not by a path."""
    return '://' in os.fspath(checkpoint)


def cached_path(url: str) -> Path:
    """Return where the file of an address is kept.

    A name without a hash gets the address's, since many files are called ``model.safetensors``.
    """
    name = Path(unquote(urlparse(url).path)).name
    if not _HASH.search(name):
        name = f'{hashlib.sha256(url.encode()).hexdigest()[:8]}-{name}'
    return Path(torch.hub.get_dir(), 'checkpoints', name)


def local_path(checkpoint: str | os.PathLike) -> Path:
    """Return the path of a checkpoint's file, downloaded first if an address is named.

    Raises:
        CheckpointError: If it cannot be downloaded, or its hash is not the one in its name.
    """
    url = os.fspath(checkpoint)
    if is_on_hub(url):
        return hub_file(url)
    if not is_address(checkpoint):
        return Path(checkpoint).expanduser()
    if not url.startswith(('http://', 'https://')):
        raise CheckpointError(f'checkpoint {url}: not an address that is read; download it and name the file')
    target = cached_path(url)
    try:
        if not target.is_file():
            _download(url, target)
    # RuntimeError: torch.hub's, for another hash
    except (OSError, RuntimeError, HTTPException) as error:
        raise CheckpointError(
            f'checkpoint {url}: cannot be downloaded ({error}); download it where there is a '
            f'network and name the file, or put it there as {target}'
        ) from error
    return target


def hub_file(name: str, cached_only: bool = False) -> Path:
    """Return the file of a repository: from the cache, else downloaded, with the description beside it; or raise."""
    rest = next(name.removeprefix(start) for start in HUBS if name.startswith(start))
    owner, _, rest = rest.partition('/')
    repository, _, file = rest.partition('/')
    repository, _, revision = f'{owner}/{repository}'.partition('@')
    if file and not {'', '.', '..'}.isdisjoint(file.split('/')):
        raise CheckpointError(f'checkpoint {name}: names no file of a repository')
    reason = 'huggingface_hub is not installed'
    with contextlib.suppress(ImportError):
        import huggingface_hub as hub

        at = dict(revision=revision or None)
        for is_cached in (True,) if cached_only else (True, False):
            try:
                chosen = file or _weights_of(_names(repository, is_cached, at), name)
                if is_cached:
                    path = hub.try_to_load_from_cache(repository, chosen, **at)
                else:
                    path = hub.hf_hub_download(repository, chosen, etag_timeout=TIMEOUT, **at)
                    with contextlib.suppress(Exception):
                        hub.hf_hub_download(repository, 'config.json', **at)
                if isinstance(path, str):
                    return Path(path)
            except CheckpointError:
                raise
            except Exception as error:  # of the hub, of its HTTP client, of the file system
                reason = ' '.join(str(error).split())[:150]
    page = f'https://huggingface.co/{repository}/resolve/{revision or "main"}/{file or HUB_FILES[0]}'
    raise CheckpointError(
        f'checkpoint {name}: neither cached nor to be downloaded ({reason}); download {page} where '
        'there is a network and name the file with checkpoint=FILE'
    )


def _names(repository: str, is_cached: bool, at: dict[str, str | None]) -> list[str]:
    """Return the names of a repository's files, of those in the cache or of all."""
    import huggingface_hub as hub

    if not is_cached:
        return hub.HfApi().list_repo_files(repository, **at)
    return os.listdir(hub.snapshot_download(repository, local_files_only=True, **at))


def _weights_of(names: list[str], name: str) -> str:
    """Return which file of a repository holds the weights.

    Raises:
        FileNotFoundError: If none has a usual name, or is the only safetensors file.
        CheckpointError: If there are several safetensors files.
    """
    usual = [file for file in HUB_FILES if file in names]
    others = sorted(file for file in names if file.endswith(SAFETENSORS))
    if not usual and len(others) > 1:
        raise CheckpointError(
            f'checkpoint {name}: the repository has several files of weights ({", ".join(others[:5])}); name one, '
            f'{name}/{others[0]}'
        )
    if not usual and not others:
        raise FileNotFoundError(f'it has no {" or ".join(HUB_FILES)}')
    return (usual or others)[0]


def _download(url: str, target: Path) -> None:
    """Download a file, unless another process of this machine that is waited for has done it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with open(target.with_name(f'.{target.name}.lock'), 'w') as lock:
        # no locks here: each process downloads for itself
        with contextlib.suppress(ImportError, OSError):
            import fcntl

            fcntl.flock(lock, fcntl.LOCK_EX)
        if target.is_file():
            return
        log(f'downloading {url} to {target}')
        digits = _HASH.search(Path(urlparse(url).path).name)
        timeout = socket.getdefaulttimeout()
        # torch.hub passes none, and would wait for a silent network for ever
        socket.setdefaulttimeout(TIMEOUT)
        try:
            torch.hub.download_url_to_file(url, str(target), digits and digits[1], progress=sys.stderr.isatty())
        finally:
            socket.setdefaulttimeout(timeout)
