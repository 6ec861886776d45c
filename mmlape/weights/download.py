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

from mmlape.errors import CheckpointError
from mmlape.log import log

TIMEOUT = 60
HUB = 'hf-hub:'
"""Before the name of a repository on the Hugging Face hub, as in timm:
'hf-hub:OWNER/NAME[@REVISION][/FILE]'."""
HUB_FILES = (
    'model.safetensors',
    'pytorch_model.bin',
    'open_clip_model.safetensors',
    'open_clip_pytorch_model.bin',
)
_HASH = re.compile(r'-([0-9a-f]{8,64})\.')


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
    if url.startswith(HUB):
        return _hub_file(url)
    if not is_address(checkpoint):
        return Path(checkpoint).expanduser()
    if not url.startswith(('http://', 'https://')):
        raise CheckpointError(
            f'checkpoint {url}: not an address that is read; download it and name the file'
        )
    target = cached_path(url)
    try:
        _download(url, target)
    # RuntimeError: torch.hub's, for another hash
    except (OSError, RuntimeError, HTTPException) as error:
        raise CheckpointError(
            f'checkpoint {url}: cannot be downloaded ({error}); download it where there is a '
            f'network and name the file, or put it there as {target}'
        ) from error
    return target


def _hub_file(name: str) -> Path:
    """Return the file of a repository: from the cache, else downloaded, with the description beside it; or raise."""
    owner, _, rest = name.removeprefix(HUB).partition('/')
    repository, _, file = rest.partition('/')
    repository, _, revision = f'{owner}/{repository}'.partition('@')
    files, reason = [file] if file else HUB_FILES, 'huggingface_hub is not installed'
    with contextlib.suppress(ImportError):
        from huggingface_hub import hf_hub_download, try_to_load_from_cache
        from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

        for candidate in files:
            cached = try_to_load_from_cache(repository, candidate, revision=revision or None)
            if isinstance(cached, str):
                return Path(cached)
        for candidate in files:
            try:
                downloaded = hf_hub_download(
                    repository, candidate, revision=revision or None, etag_timeout=TIMEOUT
                )
            except Exception as error:  # of the hub, of its HTTP client, of the file system
                reason = ' '.join(str(error).split())[:150]
                if isinstance(error, EntryNotFoundError) and not isinstance(
                    error, LocalEntryNotFoundError
                ):
                    continue
                break
            with contextlib.suppress(Exception):
                hf_hub_download(repository, 'config.json', revision=revision or None)
            return Path(downloaded)
    page = f'https://huggingface.co/{repository}/resolve/{revision or "main"}/{files[0]}'
    raise CheckpointError(
        f'checkpoint {name}: neither cached nor to be downloaded ({reason}); download {page} where '
        'there is a network and name the file with checkpoint=FILE'
    )


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
        named = _HASH.search(Path(urlparse(url).path).name)
        timeout = socket.getdefaulttimeout()
        # torch.hub passes none, and would wait for a silent network for ever
        socket.setdefaulttimeout(TIMEOUT)
        try:
            torch.hub.download_url_to_file(
                url, str(target), named and named[1], progress=sys.stderr.isatty()
            )
        finally:
            socket.setdefaulttimeout(timeout)
