"""What every backbone of this package offers to what surrounds it, so that a new one is one file.

LayerStack       its layers, and how deep a parameter is: optimiser, gradient norms, sharding
FreezesStages    ``frozen_stages``
JoinsPosition    tables, norms and encodings of the PE: layers and files
ShowsPosition    the PE as the layers see it: figures
BaseBackbone     constructor, initial values, outputs, and ``checkpoint_adapter`` for files
"""

import copy
import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from mmlape.checkpoint.loading import LoadReport, load_pretrained
from mmlape.errors import ConfigError, require_choice
from mmlape.log import log
from mmlape.models.base.checkpoint import CheckpointAdapter
from mmlape.models.base.fitting import resize_on_load
from mmlape.models.base.freezing import FreezesStages
from mmlape.models.base.initial_values import initialise
from mmlape.models.base.position_tables import require_encodings
from mmlape.models.base.recording import require_registered
from mmlape.models.base.shown_position import ShowsPosition
from mmlape.models.grid import RESIZE_MODES, Grid, ceil_div
from mmlape.models.names import parameters
from mmlape.models.position import resolve_position


def _refuse_unfinished(backbone: nn.Module, *args) -> None:
    raise ConfigError(
        f'{type(backbone).__name__}: its constructor must end with self.complete(), which adds the tables of the '
        'position encodings and applies frozen_stages'
    )


class BaseBackbone(FreezesStages, ShowsPosition, ABC):
    """A backbone: layers one after the other, with or without position encodings.

    A subclass sets ``embed_dims``, ``grid``, ``position`` and ``frozen_stages`` in its constructor, builds its layers
    (a module list ``layers_name``, or ``all_layers``) with ``position.build_inside()`` in their attention, and defines
    ``forward``. Its constructor calls ``register_arguments`` behind its base's, and ends with ``complete``.

    Attributes:
        checkpoint_adapter: Knows the backbone's checkpoint files.
        init_cfg: Where initial values come from; of ``mmengine.model.BaseModule``.
        is_init: Whether ``init_weights`` has been called.
        load_report: Of the checkpoint that ``init_cfg`` names, once it is loaded.
        arguments: What it was built with, by name.
        recorded_arguments: Arguments that files record, because neither names nor shapes of tensors tell them.
        archs: What the argument ``arch`` stands for, by name.
        model_names: Arguments by the names of models that ``mmlape.get_model`` takes; a subclass has its own.
        out_types: Forms of the outputs.
        out_type: One of them.
        out_indices: Layers, or stages, to return, counted from 0.
        in_channels: Channels of the images.
        patch_size: Side in pixels that a token stands for at the input; no side of an image may be smaller.
        strides: Strides of the outputs; empty where outputs are no maps.
    """

    checkpoint_adapter: CheckpointAdapter = CheckpointAdapter()
    load_report: LoadReport | None = None
    archs: ClassVar[Mapping[str, dict]] = {}
    model_names: ClassVar[Mapping[str, dict]] = {}
    out_types: ClassVar[tuple[str, ...]] = ('raw', 'featmap', 'avg_featmap')
    arguments: dict[str, Any]
    in_channels: int = 3
    patch_size: int = 1
    strides: tuple[int, ...] = ()

    def __init__(self, init_cfg: dict | list[dict] | None = None):
        super().__init__()
        self.init_cfg, self.is_init = copy.deepcopy(init_cfg), False
        self.position = resolve_position('none', 'default', 'layernorm')
        self.recorded_arguments: dict[str, Any] = {}
        self.pe_norm = None
        self.arguments = {}
        self._unfinished: RemovableHandle | None = self.register_forward_pre_hook(_refuse_unfinished)
        resize_on_load(self)

    def register_arguments(self, named: Mapping[str, Any], /, **others: Any) -> None:
        """Note what the backbone is built with, which its files record.

        The arguments of a subclass replace those of its base.

        Args:
            named: ``locals()`` of the constructor, as long as it has changed no argument; what is none is left out.
            **others: The constructor's own ``**kwargs``.
        """
        known = parameters(type(self))
        taken = {key: named[key] for key in known if key in named}
        self.arguments = copy.deepcopy({**taken, **others})

    def complete(self) -> None:
        """Do what follows from the arguments, at the end of a constructor.

        The absolute PE's tables and the encodings between layers are added where the constructor has not done so (the
        order of random initial values is then its own), so is the last norm's norm of the PE, and ``frozen_stages``
        is applied.

        Raises:
            ConfigError: If the layers lack something that ``position`` says, if its joining is for patch tokens only
                and there are others, or for an unknown ``interpolate_mode``.
        """
        require_choice('interpolate_mode', self.interpolate_mode, RESIZE_MODES)
        kind = self.position.absolute
        if kind is not None:
            require_choice('interpolate_mode', self.interpolate_mode, kind.modes, f'{kind.name}: ')
        self.add_tables(self.num_layers)
        self.add_encodings()
        self.add_last_pe_norm()
        require_encodings(self)
        self.freeze()
        if self._unfinished is not None:
            self._unfinished.remove()
            self._unfinished = None

    def init_weights(self) -> None:
        """Load the checkpoint of ``init_cfg``, or let MMEngine do what else it says; without it, weights stay.

        MMEngine's models call this of each child that has it.

        Raises:
            CheckpointError: If the checkpoint does not fit the model.
            ConfigError: If ``init_cfg`` names an initialiser of MMEngine, which is not installed; if the constructor
                has not made its two calls.
        """
        if self._unfinished is not None:
            _refuse_unfinished(self)
        require_registered(self)
        if load_pretrained(self):
            return
        if self.is_init:
            log(f'init_weights of {type(self).__name__} has been called more than once.', logging.WARNING)
            return
        if self.init_cfg:
            initialise(self, self.init_cfg)
        for child in self.children():
            if hasattr(child, 'init_weights') and not getattr(child, 'is_init', False):
                child.init_weights()
        self.is_init = True

    def __prepare_scriptable__(self):
        """Refuse ``torch.jit.script``, which asks every module.

        Raises:
            ConfigError: Always.
        """
        raise ConfigError(
            f'torch.jit.script cannot compile {type(self).__name__}, whose layers pass on more than '
            'tensors: use torch.export, torch.compile or torch.jit.trace'
        )

    def grid_of(self, size: int | tuple[int, int]) -> Grid:
        """Return the grid of tokens of an image of (height, width) pixels, or of a square one."""
        height, width = (size, size) if isinstance(size, int) else size
        return ceil_div(height, self.patch_size), ceil_div(width, self.patch_size)

    @abstractmethod
    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """Extract features.

        Args:
            x: Images (B, C, H, W).

        Returns:
            One entry per out index, of the form that ``out_type`` says.

        Raises:
            DataError: If a side of the images is smaller than a patch.
        """

    def set_outputs(self, out_type: str, out_indices: int | Sequence[int], count: int, part: str = 'layer') -> None:
        """Check and set ``out_type``, ``out_indices`` and ``strides``; ``patch_size`` must be set.

        Of ``out_indices``, negative ones count from the end of ``count`` parts; ``part`` is what messages call one.

        Raises:
            ConfigError: For an unknown form, no part at all, and one that is not there.
        """
        require_choice('out_type', out_type, self.out_types)
        indices = list(out_indices) if isinstance(out_indices, Sequence) else [out_indices]
        absent = [index for index in indices if index not in range(-count, count)]
        if absent or not indices:
            wrong = f'there is no {part} {absent[0]!r}' if absent else f'name one {part} or more'
            raise ConfigError(f'out_indices={out_indices!r}: {wrong}, the model has {count}')
        self.out_type, self.out_indices = out_type, [int(index) % count for index in indices]
        self.strides = (self.patch_size,) * len(indices) if out_type == 'featmap' else ()

    def absent_parts(self) -> tuple[str, ...]:
        """Return beginnings of names of tensors that other models of this class have; a file's are left out."""
        return tuple(name for name in type(self).prefix_tokens if name not in self.prefix_tokens)
