"""Published checkpoints on the Hugging Face hub: a repository holds the weights, their config and a model card.

    model.safetensors   the weights, and what a file records beside them
    config.py           the config of the run, plain values only
    README.md           the card: metrics, hash and provenance, without host names and absolute paths

``hf-hub:OWNER/NAME`` names the weights of such a repository wherever a checkpoint is named.
"""

import ast
import contextlib
import math
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from mmlape.checkpoint.converting import (
    model_card,
    run_config,
    run_records,
    weights_to_publish,
    without_folders,
    write_tensors,
)
from mmlape.checkpoint.download import TIMEOUT
from mmlape.checkpoint.reading import read_checkpoint
from mmlape.checkpoint.records import read_record
from mmlape.errors import CheckpointError
from mmlape.files import atomic_path

WEIGHTS, CONFIG, CARD = 'model.safetensors', 'config.py', 'README.md'
TASKS = {'mmdet': 'object-detection', 'mmseg': 'image-segmentation', 'mmpretrain': 'image-classification'}
"""The hub's name for the task of a config, by its ``default_scope``."""
_BUILT_BY = ('type', 'constructor', 'runner_type')
"""Keys whose value MMEngine looks up in a registry, else imports and calls, whatever it is."""
_REGISTERED = re.compile(r'[^.]*|(mmlape|mmengine|mmcv|mmdet|mmseg|mmpretrain)\.[A-Z]\w*')
_PLAIN = (
    ast.Module, ast.Assign, ast.Store, ast.Load, ast.Call, ast.keyword, ast.Constant, ast.List, ast.Tuple, ast.Dict,
    ast.UnaryOp, ast.USub,
)  # fmt: skip


def push(
    src: str | Path, repository: str, weights: str = 'plain', private: bool = False, overwrite: bool = False
) -> str:
    """Publish a checkpoint as a repository of the Hugging Face hub.

    Args:
        src: The checkpoint; config and records of its run are taken from its folder.
        repository: 'OWNER/NAME'.
        weights: 'plain' or 'ema', as in `publish`.
        private: Whether only its owners see a new repository.
        overwrite: Whether the repository may be there already; it gets a commit.

    Returns:
        The address of the repository.

    Raises:
        CheckpointError: If there are no such weights, no token, the repository is there already, or the hub refuses.
    """
    with _hub(repository) as hub, tempfile.TemporaryDirectory() as folder:
        if hub.get_token() is None:
            raise CheckpointError('push needs a token of the Hugging Face hub: run `hf auth login`, or set HF_TOKEN')
        write_repository(Path(src), Path(folder), repository.rpartition('/')[2], weights)
        api = hub.HfApi()
        try:
            address = api.create_repo(repository, private=private, exist_ok=overwrite)
        except hub.errors.HfHubHTTPError as error:
            if error.response.status_code == 409:
                raise CheckpointError(
                    f'{repository} is there already; choose another name, or pass --overwrite for a commit to it'
                ) from error
            raise
        api.upload_folder(repo_id=repository, folder_path=folder, commit_message='Publish a checkpoint of mmlape')
        return str(address)


def write_repository(src: Path, folder: Path, name: str, weights: str = 'plain') -> None:
    """Write the files of a repository that is called ``name`` into a folder; arguments and errors are `push`'s."""
    from huggingface_hub import EvalResult, ModelCardData

    tensors, record = weights_to_publish(src, weights)
    if not record.backbones:
        raise CheckpointError(
            f'{src}: records nothing of its model; a file that does is written by '
            f'`mmlape checkpoint convert {src} FILE.pth --to mmlape`'
        )
    write_tensors(tensors, folder / WEIGHTS, record=record)
    card, task = model_card(folder / WEIGHTS, src, weights, tensors), None
    about: dict = dict(model_name=name, library_name='mmlape', tags=['mmlape'])
    for config in run_config(src):
        text = without_folders(config.read_text(encoding='utf-8'))
        check_plain(text, config)
        (folder / CONFIG).write_text(text, encoding='utf-8')
        scope = re.search(r"^default_scope = '(\w+)'", text, re.MULTILINE)
        task, data = TASKS.get(scope[1] if scope else ''), config.stem.rpartition('_')[2]
        metrics = _metrics(src).items() if task else ()
        about |= dict(pipeline_tag=task) if task else {}
        # an undefined one is None, or COCO's -1
        known = [(key, value) for key, value in metrics if value not in (None, -1) and math.isfinite(value)]
        about |= dict(eval_results=[EvalResult(task, data, data, *item) for item in known] or None)
    front = ModelCardData(**about).to_yaml()
    text = f'---\n{front}\n---\n\n{card.replace(WEIGHTS.partition(".")[0], name, 1)}'
    (folder / CARD).write_text(text, encoding='utf-8')


def _metrics(src: Path) -> dict[str, float | None]:
    """Return the metrics of a checkpoint: those of a test, else of the run's evaluation at its step."""
    records = run_records(src)
    if 'metrics.json' in records:
        return records['metrics.json'].get('metrics', {})
    found = re.search(r'(iter|epoch)_(\d+)$', src.stem)
    for entry in filter(None, (records.get('run.json', {}).get(which) for which in ('best', 'last'))):
        if found and entry.get({'iter': 'step'}.get(found[1], found[1])) == int(found[2]):
            return entry['metrics']
    return {}


def pull(name: str, folder: str | Path, overwrite: bool = False) -> list[Path]:
    """Download a published checkpoint with its config and card.

    Args:
        name: 'OWNER/NAME', or 'OWNER/NAME@REVISION'.
        folder: Receives the files.
        overwrite: Whether they may be there already.

    Returns:
        The files: weights, then config and card if the repository has them.

    Raises:
        CheckpointError: If nothing can be downloaded, the weights are no published checkpoint, the config is more
            than plain values, or one of the three files is there already.
    """
    repository, _, revision = name.partition('@')
    there = [str(path) for file in (WEIGHTS, CONFIG, CARD) if (path := Path(folder, file)).exists()]
    if there and not overwrite:
        raise CheckpointError(f'{", ".join(there)}: there already; choose another folder or pass --overwrite')
    with _hub(repository) as hub:

        def fetch(file: str) -> Path | None:
            try:
                return Path(hub.hf_hub_download(repository, file, revision=revision or None, etag_timeout=TIMEOUT))
            except hub.errors.LocalEntryNotFoundError:  # no network
                raise
            except hub.errors.EntryNotFoundError:
                return None

        found = {file: path for file in (WEIGHTS, CONFIG, CARD) if (path := fetch(file))}
    if WEIGHTS not in found or not read_record(read_checkpoint(found[WEIGHTS]), found[WEIGHTS]).backbones:
        raise CheckpointError(
            f'{name}: no published checkpoint of mmlape, {WEIGHTS} '
            f'{"records nothing of its model" if WEIGHTS in found else "is not there"}; where a checkpoint is named, '
            f'hf-hub:{name} takes weights of others'
        )
    if CONFIG in found:
        check_plain(found[CONFIG].read_bytes(), f'{name}/{CONFIG}')
    for path in map(Path, there):  # an old config does not stay beside new weights
        if path.name not in found:
            path.unlink()
    for file, source in found.items():
        with atomic_path(Path(folder, file)) as partial:
            shutil.copyfile(source, partial)
    return [Path(folder, file) for file in found]


def check_plain(content: str | bytes, where: str | Path) -> None:
    """Check that a config is assignments of plain values, so that reading it runs no code.

    What is built from it must have a registered name, which 'os.system' is not, and no file may be a pickle.

    Raises:
        CheckpointError: If it is more.
    """
    try:
        text = content if isinstance(content, str) else content.decode()
        nodes = list(ast.walk(ast.parse(text)))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise CheckpointError(f'{where}: no config ({error})') from error
    refused = next((node for node in nodes if not _is_plain(node)), None)
    if refused or '{{' in text:  # what stands between these, MMEngine replaces before Python reads it
        raise CheckpointError(
            f'{where}: refused, the config is more than plain values (line {getattr(refused, "lineno", 1)}), so '
            'reading it could run code; `mmlape print-config` writes one of plain values'
        )
    texts = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    risks = [value for node in nodes for value in _built(node) if not _REGISTERED.fullmatch(value)]
    risks += [value for value in texts if value.endswith(('.pkl', '.pickle'))]  # MMEngine unpickles annotations
    if risks:
        raise CheckpointError(
            f'{where}: refused, {risks[0]!r} could run any code; give the registered name of a class instead of its '
            'path, and another format than pickle'
        )


def _is_plain(node: ast.AST) -> bool:
    """Check that a node is part of an assignment of plain values; ``_base_`` would name another file."""
    if isinstance(node, ast.Name):
        return node.id == 'dict' if isinstance(node.ctx, ast.Load) else node.id != '_base_'
    return isinstance(node, _PLAIN) and not getattr(node, 'args', None)


def _built(node: ast.AST) -> list[str]:
    """Return the texts that are values of ``_BUILT_BY`` in a dict."""
    items = [(node.arg, node.value)] if isinstance(node, ast.keyword) else []
    items += zip(node.keys, node.values) if isinstance(node, ast.Dict) else []
    values = [getattr(value, 'value', None) for key, value in items if getattr(key, 'value', key) in _BUILT_BY]
    return [value for value in values if isinstance(value, str)]


@contextlib.contextmanager
def _hub(repository: str) -> Iterator:
    """Yield the module `huggingface_hub`; raise what it raises as CheckpointError."""
    try:
        import huggingface_hub
        import huggingface_hub.errors
    except ImportError as error:
        raise CheckpointError('huggingface_hub is not installed: pip install huggingface_hub') from error
    try:
        yield huggingface_hub
    except CheckpointError:
        raise
    except Exception as error:  # of the hub, of its HTTP client, of the file system
        raise CheckpointError(f'{repository}: {" ".join(str(error).split())[:300]}') from error
