"""An ONNX graph of a complete model, run by onnxruntime on the CPU."""

import importlib.util
import json
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from mmlape.engine.graphs.input import Input
from mmlape.errors import CheckpointError, DataError, MissingCheckpointError, StackError
from mmlape.models.grid import Grid

SUFFIX = '.onnx'
PACKAGES = ('onnx', 'onnxscript', 'onnxruntime')


def require_onnx(*names: str) -> None:
    """Raise StackError if one of these packages is missing."""
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if missing:
        raise StackError(f'ONNX graphs need {", ".join(missing)}: pip install {" ".join(missing)}')


class Graph:
    """A graph in a file.

    Args:
        path: Written by ``mmlape export-onnx``.

    Attributes:
        notes: The metadata of the file.
        outputs: Names of the outputs.
        size: Height and width of the image.

    Raises:
        CheckpointError: The file is missing, or is no such graph.
    """

    def __init__(self, path: str | Path) -> None:
        require_onnx('onnxruntime')
        import onnxruntime

        if not Path(path).is_file():
            raise MissingCheckpointError(f'{path} does not exist')
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        options.intra_op_num_threads = torch.get_num_threads()
        try:
            self._session = onnxruntime.InferenceSession(
                str(path), options, providers=['CPUExecutionProvider']
            )
        except Exception as error:  # onnxruntime has types of its own for each fault
            reason = str(error).strip().splitlines()[0]
            raise CheckpointError(
                f'{path} is no graph that onnxruntime can run: {reason}'
            ) from error
        self.path = Path(path)
        self.notes: dict[str, str] = self._session.get_modelmeta().custom_metadata_map
        self.outputs = tuple(output.name for output in self._session.get_outputs())
        inputs = self._session.get_inputs()
        if len(inputs) != 1:
            raise CheckpointError(
                f'{path} takes {len(inputs)} inputs, not one image: give a graph of export-onnx'
            )
        (self._input,) = inputs
        self.size: Grid = tuple(self._input.shape[2:])

    @property
    def task(self) -> str | None:
        """The task of a complete model; None for a backbone."""
        return self.notes.get('task')

    @property
    def classes(self) -> list[str]:
        """The name of each class."""
        return json.loads(self.notes.get('classes', '[]'))

    def __call__(self, image: Tensor) -> list[Tensor]:
        """Return the outputs for one image, (1, C, H, W)."""
        found = self._session.run(None, {self._input.name: image.numpy()})
        return [torch.from_numpy(value) for value in found]

    def of_batch(self, inputs: Tensor, given: Input) -> list[Tensor]:
        """Return each output for a batch of a network's inputs, as `of_image` does for one."""
        return [
            torch.cat(parts) for parts in zip(*(self.of_image(image, given) for image in inputs))
        ]

    def of_image(self, inputs: Tensor, given: Input) -> list[Tensor]:
        """Return the outputs for a network's input, (C, h, w), which is padded to the size of the graph.

        Raises:
            DataError: It is larger.
        """
        height, width = inputs.shape[1:]
        right, below = self.size[1] - width, self.size[0] - height
        if min(right, below) < 0:
            raise DataError(
                f'{self.path} takes images of {self.size[0]} x {self.size[1]}, and the test '
                f'pipeline gives one of {height} x {width}: export with --size {height} {width}, '
                'or test with a smaller scale'
            )
        padded = F.pad(inputs[None], (0, right, 0, below)).float()
        return [value.to(inputs.device) for value in self(given.restore(padded).cpu().contiguous())]
