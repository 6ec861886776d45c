"""Published checkpoints on the Hugging Face hub.

A repository holds the weights, their config and a model card.

    model.safetensors   the weights, and what a file records beside them
    config.py           the config of the run, plain values only, redacted
    README.md           the card: metrics, hash and provenance, redacted

``hf-hub:OWNER/NAME`` names the weights of such a repository wherever a checkpoint is named.
"""

import contextlib
import math
import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from mmlape.checkpoint.converting import (
    model_card,
    read_run,
    run_config,
    run_records,
    weights_to_publish,
    write_tensors,
)
from mmlape.checkpoint.metadata import read_metadata
from mmlape.errors import CheckpointError
from mmlape.weights.download import TIMEOUT
from mmlape.weights.plain_config import read_plain, write_plain
from mmlape.weights.reading import read_checkpoint

WEIGHTS, CONFIG, CARD = 'model.safetensors', 'config.py', 'README.md'
TASKS = {
    'mmdet': 'object-detection',
    'mmseg': 'image-segmentation',
    'mmpretrain': 'image-classification',
}
"""The hub's name for the task of a config, by its ``default_scope``."""
CONFIG_NAME = 'config_name'
"""The key in a published config that names the config, or the arm of a study, that the run was
trained with."""


def push(
    src: str | Path,
    repository: str,
    weights: str = 'plain',
    private: bool = False,
    overwrite: bool = False,
    confirm: Callable[[Path, list[str]], bool] | None = None,
) -> str:
    """Publish a checkpoint as a repository of the Hugging Face hub.

    Args:
        src: The checkpoint; config and records of its run are taken from its folder.
        repository: 'OWNER/NAME'.
        weights: 'plain' or 'ema', as in `publish`.
        private: Whether only its owners see a new repository.
        overwrite: Whether the repository may be there already; it gets a commit.
        confirm: Called with the folder of the files and the places of values that were redacted,
            before anything is sent; unless it returns True, nothing is.

    Returns:
        The address of the repository.

    Raises:
        CheckpointError: If there are no such weights, no token, it is not confirmed, the repository
            is there already, or the hub refuses.
    """
    with _hub(repository) as hub, tempfile.TemporaryDirectory() as folder:
        if hub.get_token() is None:
            raise CheckpointError(
                'push needs a token of the Hugging Face hub: run `hf auth login`, or set HF_TOKEN'
            )
        redacted = write_repository(Path(src), Path(folder), repository.rpartition('/')[2], weights)
        if confirm and not confirm(Path(folder), redacted):
            raise CheckpointError(f'{repository}: not confirmed, nothing was sent')
        api = hub.HfApi()
        try:
            address = api.create_repo(repository, private=private, exist_ok=overwrite)
        except hub.errors.HfHubHTTPError as error:
            if error.response.status_code == 409:
                raise CheckpointError(
                    f'{repository} is there already; choose another name, or pass --overwrite for '
                    'a commit to it'
                ) from error
            raise
        api.upload_folder(
            repo_id=repository, folder_path=folder, commit_message='Publish a checkpoint of mmlape'
        )
        return str(address)


def write_repository(src: Path, folder: Path, name: str, weights: str = 'plain') -> list[str]:
    """Write the files of a repository that is called ``name`` into a folder.

    Arguments and errors are `push`'s.

    Returns:
        The places of values of records and config that were redacted.
    """
    from huggingface_hub import EvalResult, ModelCardData

    tensors, metadata = weights_to_publish(src, weights)
    if not metadata.backbones:
        raise CheckpointError(
            f'{src}: records nothing of its model; a file that does is written by '
            f'`mmlape checkpoint convert {src} FILE.pth --to mmlape`'
        )
    run = read_run(src)
    for file in run_config(src):
        read_plain(file.read_bytes(), file)  # raises if it is more than plain values
    write_tensors(tensors, folder / WEIGHTS, metadata=metadata)
    card = model_card(folder / WEIGHTS, src, weights, tensors, run)
    about: dict = dict(model_name=name, library_name='mmlape', tags=['mmlape'])
    if run.config is not None:
        (folder / CONFIG).write_text(
            write_plain({CONFIG_NAME: run.name, **run.config}), encoding='utf-8'
        )
        task, data = TASKS.get(run.config.get('default_scope', '')), run.name.rpartition('_')[2]
        metrics = _metrics(src).items() if task else ()
        about |= dict(pipeline_tag=task) if task else {}
        # an undefined one is None, or COCO's -1
        known = [
            (key, value)
            for key, value in metrics
            if value not in (None, -1) and math.isfinite(value)
        ]
        about |= dict(eval_results=[EvalResult(task, data, data, *item) for item in known] or None)
    front = ModelCardData(**about).to_yaml()
    text = f'---\n{front}\n---\n\n{card.replace(WEIGHTS.partition(".")[0], name, 1)}'
    (folder / CARD).write_text(text, encoding='utf-8')
    return run.redacted


def _metrics(src: Path) -> dict[str, float | None]:
    """Return the metrics of a checkpoint: those of a test, else of the run's evaluation at its step."""
    records = run_records(src)
    if 'metrics.json' in records:
        return records['metrics.json'].get('metrics', {})
    found = re.search(r'(iter|epoch)_(\d+)$', src.stem)
    for entry in filter(
        None, (records.get('run.json', {}).get(which) for which in ('best', 'last'))
    ):
        if found and entry.get({'iter': 'step'}.get(found[1], found[1])) == int(found[2]):
            return entry['metrics']
    return {}


def download(name: str) -> dict[str, Path]:
    """Download the files of a published checkpoint into the cache of the hub's client.

    Args:
        name: 'OWNER/NAME', or 'OWNER/NAME@REVISION'.

    Returns:
        Where they are by name: weights, then config and card if the repository has them.

    Raises:
        CheckpointError: If nothing can be downloaded, or the weights are no published checkpoint.
    """
    repository, _, revision = name.partition('@')
    with _hub(repository) as hub:

        def fetch(file: str) -> Path | None:
            try:
                return Path(
                    hub.hf_hub_download(
                        repository, file, revision=revision or None, etag_timeout=TIMEOUT
                    )
                )
            except hub.errors.LocalEntryNotFoundError:  # no network
                raise
            except hub.errors.EntryNotFoundError:
                return None

        found = {file: path for file in (WEIGHTS, CONFIG, CARD) if (path := fetch(file))}
    metadata = None
    if WEIGHTS in found:
        metadata = read_metadata(read_checkpoint(found[WEIGHTS]), found[WEIGHTS])
    if metadata is None or not metadata.backbones:
        raise CheckpointError(
            f'{name}: no published checkpoint of mmlape, {WEIGHTS} '
            f'{"records nothing of its model" if WEIGHTS in found else "is not there"}; where a '
            f'checkpoint is named, hf-hub:{name} takes weights of others'
        )
    return found


@contextlib.contextmanager
def _hub(repository: str) -> Iterator:
    """Yield the module `huggingface_hub`; raise what it raises as CheckpointError."""
    try:
        import huggingface_hub
        import huggingface_hub.errors
    except ImportError as error:
        raise CheckpointError(
            'huggingface_hub is not installed: pip install huggingface_hub'
        ) from error
    try:
        yield huggingface_hub
    except CheckpointError:
        raise
    except Exception as error:  # of the hub, of its HTTP client, of the file system
        raise CheckpointError(f'{repository}: {" ".join(str(error).split())[:300]}') from error
