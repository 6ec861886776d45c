"""An ONNX graph of a complete model, run by onnxruntime on the CPU, and how an image becomes what its network takes.

A file may be a stranger's: what `export-onnx` does not write, such as a loop, is refused.
"""

import importlib.util
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from mmcv.transforms import LoadImageFromFile
from mmengine.config import Config
from torch import Tensor, nn

from mmlape.errors import CheckpointError, DataError, MissingCheckpointError, StackError
from mmlape.lab.registry import is_a

SUFFIX = '.onnx'
PACKAGES = ('onnx', 'onnxscript', 'onnxruntime')
OWN = ('', 'ai.onnx', 'com.microsoft')
"""Domains of operators that onnxruntime has."""
FLOAT, INTEGER = 'tensor(float)', 'tensor(int64)'


Size = tuple[int, int]
"""Height and width of an image, in pixels."""


class Input(NamedTuple):
    """How a model normalises an image."""

    mean: Tensor | None  # (C, 1, 1), in the order of the network's channels; None for no normalisation
    std: Tensor | None
    reversed: bool  # whether the network's channels are BGR

    @classmethod
    def of(cls, model: nn.Module, cfg: Config) -> 'Input':
        """Read it from a model's data preprocessor.

        The pipeline of the config's test says which order it gets.
        """
        preprocessor = model.data_preprocessor
        enabled = getattr(preprocessor, '_enable_normalize', False)
        mean, std = (preprocessor.mean, preprocessor.std) if enabled else (None, None)
        steps = cfg.test_dataloader.dataset.get('pipeline') or []
        files = bool(steps) and is_a(steps[0], LoadImageFromFile, cfg.get('default_scope'), 'TRANSFORMS')
        # MMPretrain's own attribute has another name
        converts = any(getattr(preprocessor, name, False) for name in ('_channel_conversion', 'to_rgb'))
        grey = mean is not None and len(mean) == 1
        # files are loaded as BGR; datasets that are arrays have RGB
        return cls(mean, std, reversed=not grey and files != converts)

    @property
    def channels(self) -> int:
        """The number of channels of an image."""
        return 3 if self.mean is None else len(self.mean)

    def notes(self) -> dict[str, str]:
        """Return it as metadata: values in the order of an RGB image."""
        values = {} if self.mean is None else dict(mean=self.mean, std=self.std)
        ordered = {key: value.flatten().flip(0) if self.reversed else value for key, value in values.items()}
        listed = {key: json.dumps([round(v, 6) for v in value.flatten().tolist()]) for key, value in ordered.items()}
        return dict(input='RGB 0..255' if self.channels == 3 else 'grey 0..255', normalised='inside') | listed

    def normalise(self, image: Tensor) -> Tensor:
        """Convert (1, C, H, W), RGB in 0..255, to what the network takes."""
        if self.reversed:
            image = torch.cat([image[:, channel : channel + 1] for channel in (2, 1, 0)], dim=1)
        return image if self.mean is None else (image - self.mean) / self.std

    def restore(self, inputs: Tensor) -> Tensor:
        """Convert what the network takes back to an image."""
        image = inputs if self.mean is None else inputs * self.std + self.mean
        return image.flip(1) if self.reversed else image


def data_file(path: Path) -> Path:
    """Return the file of the values of a graph that has them beside it."""
    return path.with_name(f'{path.name}.data')


def require_onnx(*names: str) -> None:
    """Raise StackError if one of these packages is missing."""
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if missing:
        raise StackError(f'ONNX graphs need {", ".join(missing)}: pip install {" ".join(missing)}')


class Graph:
    """A graph in a file, for images of one size.

    Args:
        path: Written by ``mmlape export-onnx``, or made of such a graph.
        model: The name of one of several models in it, whose outputs and metadata are taken.

    Attributes:
        notes: The metadata of the file.
        outputs: Names of the outputs.
        size: Height and width of an image.
        batch: How many images it takes; None for any number.

    Raises:
        CheckpointError: The file is missing, or is no such graph.
    """

    def __init__(self, path: str | os.PathLike, model: str = '') -> None:
        require_onnx('onnx', 'onnxruntime')
        import onnx
        import onnxruntime

        self.path = Path(path)
        if not self.path.is_file():
            raise MissingCheckpointError(f'{path} does not exist')
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = torch.get_num_threads()
        # threads that wait busily would take the cores of PyTorch beside it
        options.add_session_config_entry('session.intra_op.allow_spinning', '0')
        try:
            content = onnx.load(path, load_external_data=False)
            foreign = next(_foreign(content, data_file(self.path)), None)
        except Exception as error:
            raise self._unreadable(error) from error
        if foreign:
            raise self._refuse(f'has {foreign}')
        try:
            session = onnxruntime.InferenceSession(str(path), options, providers=['CPUExecutionProvider'])
        except Exception as error:  # onnxruntime has types of its own for each fault
            raise self._unreadable(error) from error
        self._session = session
        self._prefix = f'{model}/' if model else ''
        notes: dict[str, str] = session.get_modelmeta().custom_metadata_map
        self.notes = notes | _below(self._prefix, notes)
        self._declared = _below(self._prefix, {one.name: (one.type, one.shape) for one in session.get_outputs()})
        self.outputs = tuple(self._declared)
        inputs = session.get_inputs()
        if len(inputs) != 1:
            raise self._refuse(f'takes {len(inputs)} inputs, not images alone')
        (self._input,) = inputs
        shape = self._input.shape
        if self._input.type != FLOAT or len(shape) != 4 or not _are_sizes(shape[1:]):
            raise self._refuse(f'takes {self._input.type} {shape}, not images of one size')
        if not _are_sizes(shape[:1]) and not isinstance(shape[0], str):
            raise self._refuse(f'takes {shape[0]} images')
        self._count = shape[0]
        self.batch: int | None = None if isinstance(shape[0], str) else shape[0]
        self.channels: int = shape[1]
        self.size: Size = tuple(shape[2:])

    def _unreadable(self, error: Exception) -> CheckpointError:
        return CheckpointError(f'{self.path} is no graph that onnxruntime can run: {_reason(error)}')

    def _refuse(self, what: str) -> CheckpointError:
        return CheckpointError(f'{self.path} {what}: give a graph of export-onnx')

    def shape(self, name: str) -> list:
        """Return the shape of an output as the graph declares it; [] if there is no such output."""
        return self._declared.get(name, ('', []))[1]

    def require(self, channels: int, outputs: Mapping[str, tuple[str, tuple]]) -> None:
        """Check what the graph declares.

        Args:
            channels: Of the image.
            outputs: The type of each, and the shape for one image; None is a size that the graph
                chooses.

        Raises:
            CheckpointError: It is something else.
        """
        if self.channels != channels:
            raise self._refuse(f'takes images of {self.channels} channels, not {channels}')
        if self.outputs != tuple(outputs):
            names = ', '.join(self.outputs)
            raise self._refuse(f'returns {names}, not {", ".join(outputs)}')
        for name, (dtype, shape) in outputs.items():
            found_dtype, found = self._declared[name]
            fits = len(found) == 1 + len(shape) and _are_sizes(found[1:])
            shape = (self._count, *shape)
            if dtype != found_dtype or not fits or any(b not in (None, a) for a, b in zip(found, shape)):
                wanted = ['any' if size is None else size for size in shape]
                raise self._refuse(f'returns {name} as {found_dtype} {found}, not {dtype} {wanted}')

    @property
    def task(self) -> str | None:
        """The task of a complete model; None for a backbone."""
        return self.notes.get('task')

    @property
    def classes(self) -> list[str]:
        """The name of each class."""
        try:
            found = json.loads(self.notes.get('classes', '[]'))
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
            raise self._refuse('has no list of names as classes in its metadata')
        return found

    def run(self, images: Tensor) -> list[np.ndarray]:
        """Return the outputs for images, (B, C, H, W), whatever they are.

        Raises:
            CheckpointError: It cannot be run.
        """
        try:
            names = [f'{self._prefix}{name}' for name in self.outputs]
            return self._session.run(names, {self._input.name: images.numpy()})
        except Exception as error:
            raise CheckpointError(f'{self.path} cannot be run: {_reason(error)}') from error

    def of_batch(
        self, inputs: Tensor, given: Input, instead: Callable[[Tensor], Sequence[Tensor]] | None = None
    ) -> list[Tensor]:
        """Return each output for a network's inputs, (B, C, h, w), which are padded to the size of the graph.

        A graph for N images runs as often as needed, the last time with the last image repeated.

        Args:
            inputs: As the data preprocessor makes them.
            given: How it does.
            instead: What computes the outputs of any number of images in place of the graph.

        Raises:
            DataError: They are larger.
        """
        height, width = inputs.shape[2:]
        right, below = self.size[1] - width, self.size[0] - height
        if min(right, below) < 0:
            raise DataError(
                f'{self.path} takes images of {self.size[0]} x {self.size[1]}, and the test '
                f'pipeline gives one of {height} x {width}: export with --size {height} {width}, '
                'or test with a smaller scale'
            )
        padded = F.pad(inputs, (0, right, 0, below)).float()
        images = given.restore(padded).cpu().contiguous()
        count, batch = len(images), None if instead else self.batch
        missing = -count % (batch or 1)
        if missing:
            images = torch.cat([images, images[-1:].expand(missing, -1, -1, -1)])
        chunks = [(instead or self)(chunk) for chunk in images.split(batch or count)]
        return [torch.cat(parts)[:count].to(inputs.device) for parts in zip(*chunks)]

    def __call__(self, images: Tensor) -> list[Tensor]:
        """Return the outputs for images, (B, C, H, W), RGB in 0..255.

        Raises:
            CheckpointError: As of `run`; or they are not what the graph declares, not finite, or no
                classes.
        """
        found = self.run(images)
        for (name, (_, shape)), value in zip(self._declared.items(), found):
            expected = [len(images) if size == self._count else size for size in shape[:1]]
            if list(value.shape) != expected + shape[1:]:
                raise self._refuse(f'returns {name} of {list(value.shape)}, and declares {shape}')
            if value.dtype.kind == 'f' and not np.isfinite(value).all():
                raise CheckpointError(f'{self.path}: {name} has values that are NaN or infinite')
            most = len(self.classes)
            if self.task == 'segmentation':  # one class has the labels 0 and 1
                most = max(most, 2)
            if name == 'labels' and value.size and not 0 <= value.min() <= value.max() < most:
                raise self._refuse(f'returns labels {value.min()} to {value.max()} of {most} classes')
        return [torch.from_numpy(value) for value in found]


def _foreign(model: Any, data: Path) -> Iterator[str]:
    """Yield what a graph of `export-onnx` does not have: it could run for ever, or read other files."""
    from onnx import AttributeProto, TensorProto

    yield from (f'a function, {function.name}' for function in model.functions)
    for node in model.graph.node:
        if any(one.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS) for one in node.attribute):
            yield f'a graph inside, of {node.op_type}'
        if node.domain not in OWN:
            yield f'an operator of {node.domain}, {node.op_type}'
    for tensor in model.graph.initializer:
        if tensor.data_location != TensorProto.EXTERNAL:
            continue
        location = [one.value for one in tensor.external_data if one.key == 'location']
        if location != [data.name] or data.is_symlink() or not data.is_file():
            yield f'values in another file, {tensor.name}'


def _below(prefix: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return what has a prefix, without it."""
    return {name.removeprefix(prefix): value for name, value in values.items() if name.startswith(prefix)}


def _are_sizes(shape: list) -> bool:
    return all(isinstance(size, int) and size > 0 for size in shape)


def _reason(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
