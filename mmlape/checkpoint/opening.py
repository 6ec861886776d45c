"""Read checkpoint files without running code from them.

PyTorch files are unpickled with ``weights_only=True`` and nothing falls back from it; safetensors
and NumPy archives hold arrays only. ``trust_checkpoints`` is the only way to full unpickling, which
can run any code in a file.
"""

import argparse
import codecs
import contextlib
import json
import logging
import os
import pickle
import re
import shutil
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mmlape.checkpoint.fetching import local_path
from mmlape.console.log import log
from mmlape.errors import CheckpointError, MissingCheckpointError, shown

MAX_RATIO = 20
FREE_BYTES = 64 * 2**20
"""An archive may unpack to ``MAX_RATIO`` times its size (weights hardly compress), and always to
``FREE_BYTES``."""

_OTHERS = {
    b'<': 'a web page: download the file itself',
    b'version https://git-lfs': 'a pointer of Git LFS, without the file itself: git lfs pull',
    b'\x1f\x8b': 'packed by gzip: unpack it',
    b'\x89HDF': 'of HDF5, as Keras writes it: save it as safetensors there',
    b'\x93NUMPY': 'one array of NumPy: save all by name, with numpy.savez',
    b'\x80': "a pickle without PyTorch's header, such as detectron2's .pkl: if you trust it with this machine, "
    'load it by pickle.load, make its arrays tensors, and write it with torch.save',
}
"""What files of other kinds are, and what to do, by their beginning."""
_OF_TORCH = b'\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.'
"""The number that a file of PyTorch before version 1.6 begins with, as a pickle has it."""
INDEX = '.index.json'
"""The end of the name of what lists the parts of weights, as transformers and accelerate write it."""
PACKED = ('.pth', '.pth.tar', '.pt')
"""Ends of the names of checkpoints that authors put into an archive of its own."""
WRAPPERS = ('state_dict', 'model', 'model_state', 'module')
"""Keys under which training code keeps the weights, in the order they are looked for."""
AVERAGES = ('state_dict_ema', 'model_ema')
"""Keys under which timm and DeiT keep the average of the weights."""
INSIDE = ('_orig_mod', '_fsdp_wrapped_module', '_checkpoint_wrapped_module', '_forward_module')
"""Modules that stand for the one in them: of compilers, FSDP, recomputation and Lightning's Fabric."""
AROUND = 'module'
"""The model in DistributedDataParallel, DataParallel, DeepSpeed's engine and AveragedModel."""
COUNTERS = ('n_averaged', 'steps')
"""What averaged models of torch and MMEngine have beside their model."""
_INSIDE = re.compile(rf'(?:^|(?<=\.))(?:{"|".join(INSIDE)})\.')


def format_of(path: Path, trusted: bool = False) -> str:
    """Recognise a file: 'torch', 'npz', 'safetensors', 'packed' (around one checkpoint), 'index' (a list of parts).

    An archive may unpack to any size if it is ``trusted``.

    Raises:
        CheckpointError: If it is of another kind, or declares more than its size can hold.
    """
    with open(path, 'rb') as file:
        head = file.read(512)
    if head.startswith(b'PK\x03\x04'):
        return _format_of_archive(path, trusted)
    if path.name.endswith(INDEX) and head.lstrip()[:1] == b'{':
        return 'index'
    if head[8:9] == b'{':  # before pickles, as the length of a header may begin like one
        return 'safetensors'
    if _OF_TORCH in head[:32]:
        return 'torch'
    _refuse_parts(path, path.parent)
    start = head.removeprefix(codecs.BOM_UTF8).lstrip()
    what = next((what for others, what in _OTHERS.items() if start.startswith(others)), f'{head[:12]!r}...')
    what = 'packed by tar: unpack it' if head[257:262] == b'ustar' else what
    raise CheckpointError(
        f'checkpoint {path}: unknown kind of file ({what}); PyTorch, safetensors and NumPy (.npz) files are read'
    )


def _refuse_parts(path: Path, folder: Path) -> None:
    """Raise CheckpointError for what is in a folder of torch.distributed.checkpoint."""
    if (folder / '.metadata').is_file():
        raise CheckpointError(
            f'checkpoint {path}: of torch.distributed.checkpoint, in parts; join them, python -m '
            f'torch.distributed.checkpoint.format_utils dcp_to_torch {folder} joined.pth, and name that file'
        )


def _format_of_archive(path: Path, trusted: bool) -> str:
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
    except zipfile.BadZipFile as error:
        raise CheckpointError(f'checkpoint {path}: cannot be read, truncated or damaged? ({error})') from error
    declared, size = sum(member.file_size for member in members), path.stat().st_size
    if not trusted and declared > max(FREE_BYTES, MAX_RATIO * size):
        raise CheckpointError(
            f'checkpoint {path}: refused, its {size:,} bytes unpack to {declared:,}, more than '
            f'{MAX_RATIO} times as many; ask its author for an uncompressed file, or, if you trust '
            'it, pass --trust-checkpoint'
        )
    names = [member.filename for member in members]
    if any(name.rpartition('/')[2] == 'constants.pkl' for name in names):
        raise CheckpointError(
            f'checkpoint {path}: a program of TorchScript; save its weights, '
            "torch.save(torch.jit.load(FILE).state_dict(), 'weights.pth')"
        )
    if any(name.rpartition('/')[2] == 'data.pkl' for name in names):
        return 'torch'
    if any(name.endswith('.npy') for name in names):
        return 'npz'
    if len(_checkpoints_in(names)) == 1:
        return 'packed'
    raise CheckpointError(
        f'checkpoint {path}: an archive without tensors, it holds {", ".join(names[:3]) or "nothing"}; unpack it '
        'and name the file of weights'
    )


def _checkpoints_in(names: list[str]) -> list[str]:
    """Return the names of checkpoints among those of an archive's members."""
    return [name for name in names if name.endswith(PACKED) and not name.startswith('__MACOSX/')]


def _read_packed(path: Path) -> dict:
    """Read the one checkpoint of an archive, unpacked into a temporary folder."""
    with zipfile.ZipFile(path) as archive, tempfile.TemporaryDirectory(prefix='mmlape-') as folder:
        (name,) = _checkpoints_in(archive.namelist())
        inner = Path(folder) / 'checkpoint.pth'
        try:
            with archive.open(name) as source, open(inner, 'wb') as target:
                shutil.copyfileobj(source, target)
        # a wrong size or checksum, an unknown compression, a password ...
        except Exception as error:
            raise CheckpointError(
                f'checkpoint {path}: {name} cannot be unpacked, truncated or damaged? ({error})'
            ) from error
        try:
            if format_of(inner, _trusted) == 'packed':
                raise CheckpointError(f'checkpoint {inner}: an archive in an archive; unpack it')
            return read_checkpoint(inner)
        except CheckpointError as error:
            raise CheckpointError(str(error).replace(str(inner), f'{path} ({name})')) from error


def _read_parts(path: Path, mmap: bool) -> dict:
    """Read the parts of weights that an index beside them lists."""
    try:
        parts = json.loads(path.read_bytes())['weight_map'].values()
        names = sorted({Path(part).name for part in parts})
        if '' in names:
            raise ValueError
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CheckpointError(
            f'checkpoint {path}: no list of the parts of weights, {{"weight_map": {{NAME: FILE}}}}; download it again'
        ) from error
    content: dict = {}
    for name in names:
        if name.endswith(INDEX):
            raise CheckpointError(f'checkpoint {path}: lists {name}, which is a list itself')
        content |= read_checkpoint(path.with_name(name), mmap)
    return content


def read_npz(path: Path) -> dict[str, Tensor]:
    """Read the arrays of a NumPy archive; two bytes without a type are bfloat16, as JAX saves it."""
    tensors = {}
    with np.load(path, allow_pickle=False) as archive:
        for name in archive.files:
            array = np.asarray(archive[name])
            is_bfloat16 = array.dtype.kind == 'V' and array.dtype.itemsize == 2
            values = torch.from_numpy(array.view(np.int16) if is_bfloat16 else array)
            tensors[name] = values.view(torch.bfloat16) if is_bfloat16 else values
    return tensors


def _history_class() -> type:
    """Return the class of MMEngine's log histories, which its checkpoints hold, or what takes its place."""
    try:
        from mmengine.logging.history_buffer import HistoryBuffer
    except ImportError:
        return argparse.Namespace
    return HistoryBuffer


def _history_method(owner: type, name: str):
    """Stand in for ``getattr`` while unpickling.

    MMEngine's log histories refer to their own statistics by it.
    """
    if owner is not _history_class() or name not in ('min', 'max', 'mean', 'current'):
        raise pickle.UnpicklingError(f'getattr of {name} is not allowed')
    return getattr(owner, name, None)


TRUST_MEANING = 'checkpoints are unpickled without restrictions: any code in them runs with your rights'
_trusted = False


def trust_checkpoints() -> None:
    """Unpickle without restrictions from now on, in this process.

    Only for files whose authors you trust with it.
    """
    global _trusted
    _trusted = True
    log(f'--trust-checkpoint: {TRUST_MEANING}', logging.WARNING)


def is_trusted() -> bool:
    """Check whether `trust_checkpoints` was called."""
    return _trusted


def _safe_globals() -> list:
    """Return the classes that are stored beside tensors.

    Log histories, NumPy values, and DeiT's command line.
    """
    core = getattr(np, '_core', None) or np.core
    dtypes = {type(np.dtype(kind)) for kind in np.sctypeDict.values() if not issubclass(kind, np.object_)}
    arrays = [np.ndarray, np.dtype, core.multiarray._reconstruct, core.multiarray.scalar, *dtypes]
    history = (_history_class(), 'mmengine.logging.history_buffer.HistoryBuffer')
    return [history, (_history_method, 'builtins.getattr'), argparse.Namespace, *arrays]


def guard_mmengine() -> None:
    """Have MMEngine read files by the rules of this module too.

    It initialises by itself what is not a backbone of this package (a head with a ``Pretrained``
    init_cfg). It falls back to unrestricted unpickling for files, and never restricts it for
    addresses. Nothing is done once ``trust_checkpoints`` was called.
    """
    from mmengine.runner.checkpoint import CheckpointLoader

    if not _trusted:
        CheckpointLoader.register_scheme(tuple(CheckpointLoader._schemes), load_from_file, force=True)


def load_from_file(filename: str, map_location: str | None = None) -> dict:
    """MMEngine's loader of files and addresses, made safe.

    It shows the name without ``load_from_``. Tensors are on the CPU, as a model copies them to its device.
    """
    return read_checkpoint(filename)


def read_checkpoint(path: str | os.PathLike, mmap: bool = False) -> dict:
    """Read a checkpoint file, whose kind is recognised by its content.

    Args:
        path: A PyTorch, safetensors or NumPy (``.npz``) file of any name, an archive (``.zip``)
            around one of PyTorch, a list of the parts of weights (``model.safetensors.index.json``)
            beside them, or an http(s) address, which is downloaded.
        mmap: Whether the tensors of a PyTorch file stay there until they are used.

    Returns:
        What the file holds; a flat dict of tensors for safetensors and NumPy archives, with a
        safetensors file's metadata under ``meta``.

    Raises:
        CheckpointError: If the file is missing, empty, truncated, of another kind, unpacks to far
            more than its size, or needs code to be run.
    """
    path = local_path(path)
    if path.is_dir():
        _refuse_parts(path, path)
        raise CheckpointError(f'checkpoint {path}: a folder; name the file of weights in it{_weights_below(path)}')
    if not path.is_file():
        raise MissingCheckpointError(f'checkpoint {path}: there is no such file')
    if path.stat().st_size == 0:
        raise CheckpointError(f'checkpoint {path}: the file is empty; copy or download it again')
    file_format = format_of(path, _trusted)
    if file_format == 'packed':
        return _read_packed(path)
    if file_format == 'index':
        return _read_parts(path, mmap)
    try:
        if file_format == 'safetensors':
            from safetensors import safe_open

            with safe_open(path, framework='pt') as archive:
                content = {key: archive.get_tensor(key) for key in archive.keys()}  # noqa: SIM118 (no mapping)
                content |= {'meta': archive.metadata()} if archive.metadata() else {}
        elif file_format == 'npz':
            content = read_npz(path)
        else:
            # newer versions of torch would go by the name; and none maps a file whose name is not UTF-8
            misnamed = path.suffix == '.safetensors' or not str(path).isprintable()
            mmap = mmap and not misnamed and zipfile.is_zipfile(path)  # files before PyTorch 1.6 are pickles
            with torch.serialization.safe_globals(_safe_globals()), path.open('rb') as file:
                given = file if misnamed else path
                content = torch.load(given, map_location='cpu', weights_only=not _trusted, mmap=mmap)
    except pickle.UnpicklingError as error:
        refused = re.search(r"GLOBAL `?([\w.]+\w)|(getattr of \w+)|<class '([\w.]+)'>", str(error))
        reason = str(error).partition('WeightsUnpickler error:')[2].strip().partition('\n')[0]
        if refused is None and reason:
            raise CheckpointError(
                f'checkpoint {path}: torch reads no such pickle without running code ({reason}); load it where it was '
                'written, and save its tensors with torch.save'
            ) from error
        if refused is None:
            raise CheckpointError(f'checkpoint {path}: not a PyTorch file, or truncated') from error
        raise CheckpointError(
            f'checkpoint {path}: refused, because reading it would run code '
            f'({refused[refused.lastindex]}); ask its author for tensors only, or, if you trust '
            'the file with this machine, pass --trust-checkpoint'
        ) from error
    except Exception as error:
        reason = shown(error)[:200]
        raise CheckpointError(f'checkpoint {path}: cannot be read, {_damage(path)}? ({reason})') from error
    if not isinstance(content, Mapping):
        _refuse_parts(path, path.parent)
        raise CheckpointError(f'checkpoint {path}: holds a {type(content).__name__}, not a dict of tensors')
    return content if isinstance(content, dict) else dict(content)


def _damage(path: Path) -> str:
    """Return what may be wrong with a file: an archive whose list of members can be read has its end."""
    return 'damaged' if zipfile.is_zipfile(path) else 'truncated or damaged'


def _weights_below(folder: Path) -> str:
    """Return the files in a folder that could be meant, ': a.pth, b.pth'."""
    found = []
    for path in sorted(folder.iterdir()):
        with contextlib.suppress(CheckpointError, OSError):
            found += [path.name] if path.is_file() and format_of(path) else []
    return f': {", ".join(found[:6])}' if found else ''


STATE_DICT = 'the state dict'
"""The name of weights that are given without a file."""


@dataclass(frozen=True)
class OpenedFile(os.PathLike):
    """A checkpoint that was read once, for all who ask it; a path for those who ask for its file.

    Another process that gets it opens the file itself, or gets the content where that is not the file's.
    """

    content: Mapping[str, Any]  # what `read_checkpoint` returns
    path: str = STATE_DICT
    is_file: bool = False  # whether the content is what the file has, and all of it

    def __fspath__(self) -> str:
        """Return the path."""
        return self.path

    def __reduce__(self) -> tuple:
        """Return what opens it anew, or builds it of its content."""
        return (open_file, (self.path, True)) if self.is_file else (OpenedFile, (self.content, self.path))

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The weights by name, see `state_dict_of`."""
        return state_dict_of(self.content, self.path)

    @property
    def meta(self) -> Mapping[str, Any]:
        """What MMEngine stores beside the weights; empty if there is nothing."""
        meta = self.content.get('meta')
        return meta if isinstance(meta, Mapping) else {}


def open_file(checkpoint: str | os.PathLike | Mapping | OpenedFile, mmap: bool = False) -> OpenedFile:
    """Open a checkpoint: a file, see `read_checkpoint`, or what is read or opened already."""
    if isinstance(checkpoint, OpenedFile):
        return checkpoint
    if isinstance(checkpoint, Mapping):
        return OpenedFile(checkpoint)
    return OpenedFile(read_checkpoint(checkpoint, mmap=mmap), os.fspath(checkpoint), is_file=True)


def averages_only(content: Mapping) -> bool:
    """Check whether a checkpoint holds averaged weights and no plain ones, as T2T-ViT's public files do."""
    plain = any(isinstance(content.get(key), Mapping) for key in WRAPPERS)
    return not plain and any(isinstance(content.get(key), Mapping) for key in AVERAGES)


def _require_plain(tensors: Mapping[str, Tensor], path: str | os.PathLike) -> None:
    """Raise CheckpointError for tensors that are not dense, or hold far more values than the file has for them."""
    seen: set[int] = set()
    stored = declared = 0
    for name, value in tensors.items():
        if value.layout is not torch.strided or value.is_quantized:
            layout = 'quantized' if value.is_quantized else 'sparse'
            raise CheckpointError(f'checkpoint {path}: {name} is a {layout} tensor; dense ones are read')
        if value.is_meta:
            raise CheckpointError(
                f'checkpoint {path}: {name} is on the meta device, without values; load it there, or '
                'build the model that it is of without torch.device("meta")'
            )
        storage, size = value.untyped_storage(), value.numel() * value.element_size()
        stored += 0 if storage.data_ptr() in seen else storage.nbytes()
        seen.add(storage.data_ptr())
        declared += size
        if declared > max(FREE_BYTES, MAX_RATIO * stored):
            raise CheckpointError(
                f'checkpoint {path}: refused, {name} {tuple(value.shape)} repeats {storage.nbytes():,} '
                f'bytes as {size:,}; ask its author for a file of contiguous tensors'
            )


def not_finite(tensors: Mapping[str, Tensor]) -> str:
    """Say which of the tensors have NaN or infinite values; '' if none has."""
    broken = [name for name, value in tensors.items() if not _is_finite(value)]
    if not broken:
        return ''
    more = f', as {len(broken) - 1} more of its {len(tensors)} tensors' if len(broken) > 1 else ''
    return f'{broken[0]} has values that are NaN or infinite{more}'


def _is_finite(value: Tensor) -> bool:
    if value.is_meta or not (value.is_floating_point() or value.is_complex()):
        return True
    value = value.float() if value.element_size() == 1 else value  # float8 has no isfinite
    return bool(torch.isfinite(value).all())


def require_finite(tensors: Mapping[str, Tensor], path: str | os.PathLike) -> None:
    """Raise CheckpointError if tensors have NaN or infinite values: the first is named."""
    if broken := not_finite(tensors):
        raise CheckpointError(f'checkpoint {path}: {broken}; its training has diverged: use an earlier checkpoint')


def weights_in(content: Mapping, path: str | os.PathLike) -> Mapping:
    """Return what holds the weights in a checkpoint: what is under ``state_dict``, ``model`` ..., or the dict itself.

    Averaged weights are taken where there are no others, and what is under another key if it is the only one with
    tensors.

    Raises:
        CheckpointError: If there are no named tensors, or several models.
    """
    if averages_only(content):
        content = content[next(key for key in AVERAGES if key in content)]
    for wrapper in WRAPPERS:
        if isinstance(content.get(wrapper), Mapping):
            content = content[wrapper]
    if _has_tensors(content):
        return content
    others = [key for key, value in content.items() if isinstance(value, Mapping) and _has_tensors(value)]
    if len(others) == 1:
        return weights_in(content[others[0]], path)
    if others:
        raise CheckpointError(
            f'checkpoint {path}: has tensors under {" and ".join(map(repr, others[:8]))}; give '
            f'mmlape.load_weights one of them: mmlape.checkpoint.read_checkpoint(FILE)[{others[0]!r}]'
        )
    kinds = sorted({type(value).__name__ for value in content.values()})
    arrays = '; make them tensors with torch.as_tensor, and save it again' if 'ndarray' in kinds else ''
    raise CheckpointError(
        f'checkpoint {path}: no tensors in it; its keys are {sorted(map(str, content))[:8]}, of {kinds[:4]}{arrays}'
    )


def _has_tensors(content: Mapping) -> bool:
    return any(isinstance(value, Tensor) for value in content.values())


def state_dict_of(content: Mapping, path: str | os.PathLike) -> dict[str, Tensor]:
    """Return the weights in a checkpoint, see ``weights_in``, under names without those of wrappers.

    Raises:
        CheckpointError: If there are no named tensors, or none of them has values.
    """
    stored = weights_in(content, path)
    tensors = {str(key): value for key, value in stored.items() if isinstance(value, Tensor)}
    _require_plain(tensors, path)
    if all(value.numel() == 0 for value in tensors.values()):
        raise CheckpointError(
            f'checkpoint {path}: its tensors are empty, as where DeepSpeed or FSDP has sharded them; '
            "write the complete weights (DeepSpeed's zero_to_fp32.py, accelerate merge-weights)"
        )
    return {name: tensors[stored_name] for name, stored_name in plain_names(tensors).items()}


def plain_names(names: Mapping[str, Any]) -> dict[str, str]:
    """Return the names of a state dict by those that they have without wrappers; counters of an average have none."""
    plain = {_INSIDE.sub('', name): name for name in names}
    if len(plain) < len(names):  # two wrappers of one module
        plain = {name: name for name in names}
    while True:
        inner = [name for name in plain if name not in COUNTERS]
        depth = len(AROUND) + 1
        if not inner or not all(name.startswith(f'{AROUND}.') for name in inner):
            return plain
        plain = {name[depth:]: plain[name] for name in inner}
