"""What every backbone of this package offers to what surrounds it, so that a new one is one file.

building    arguments, initial values, outputs
layers      which there are, and how deep a parameter is: optimiser, gradient norms, ``frozen_stages``
position    tables, norms and encodings of the PE: layers and files

Its ``checkpoint_adapter`` answers for files.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from inspect import Parameter, signature
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from mmlape.errors import ConfigError, require_choice
from mmlape.lazy import Lazy
from mmlape.models.grid import RESIZE_MODES, Grid, ceil_div
from mmlape.models.position import Joining, NormPlaces, Position, Stream, build_pe_norm, resolve_position

_VARIABLE = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)


def parameters(model_class: type) -> dict[str, Any]:
    """Return a class's arguments with their defaults by name; those that it passes on are its base's."""
    arguments: dict[str, Any] = {}
    for base in model_class.__mro__:
        own = own_parameters(base)
        arguments = own | arguments
        if len(own) + 1 == len(signature(base.__init__).parameters):  # without self
            break
    return arguments


def own_parameters(model_class: type) -> dict[str, Any]:
    """Return the arguments that a class's constructor names, with their defaults."""
    parameters = list(signature(model_class.__init__).parameters.values())[1:]
    return {parameter.name: parameter.default for parameter in parameters if parameter.kind not in _VARIABLE}


def changed_arguments(model: nn.Module) -> dict[str, Any]:
    """Return the arguments of a backbone that are not their defaults, and its ``arch``.

    Raises:
        ConfigError: If the constructor has not registered its arguments.
    """
    model_class, defaults = type(model), parameters(type(model))
    missing = [name for name in own_parameters(model_class) if name not in model.arguments]
    if missing:
        raise ConfigError(
            f'{model_class.__name__}: files cannot record {", ".join(missing)}: its constructor must call '
            'self.register_arguments(locals()) behind super().__init__(...)'
        )
    return {
        key: value
        for key, value in model.arguments.items()
        if key == 'arch' or key not in defaults or value != defaults[key]
    }


def freeze(model: nn.Module) -> None:
    """Stop the training of what ``frozen_stages`` of a backbone says.

    Raises:
        ConfigError: If there are not so many layers, or stages.
    """
    most = len(getattr(model, model.layers_name, model.all_layers))
    if model.frozen_stages not in range(-1, most + 1):
        raise ConfigError(f'frozen_stages={model.frozen_stages!r}: choose from -1, for nothing, to {most}, for all')
    if model.frozen_stages < 0:
        return
    for name in (*model.prefix_tokens[: model.num_prefix], *model.pe_names):
        getattr(model, name).requires_grad_(False)
    for module in model.frozen_modules():
        module.requires_grad_(False)


def resize_on_load(model: nn.Module) -> None:
    """Let state dicts of a model tell the grid of its PE, and resize the PE of those that are loaded."""
    model.register_state_dict_post_hook(_note_grid)
    model.register_load_state_dict_pre_hook(_resize_loaded)


def _note_grid(model: nn.Module, state_dict: Mapping, prefix: str, local_metadata: dict) -> None:
    record = model.checkpoint_adapter.record(model)
    if 'grid' in record:
        local_metadata['grid'] = tuple(record['grid'])


def _resize_loaded(model: nn.Module, state_dict: dict, prefix: str, local_metadata: Mapping, *args) -> None:
    model.checkpoint_adapter.resize_loaded(model, state_dict, prefix, local_metadata.get('grid'))


def _refuse_unfinished(backbone: nn.Module, *args) -> None:
    raise ConfigError(
        f'{type(backbone).__name__}: its constructor must end with self.complete(), which adds the tables of the '
        'position encodings and applies frozen_stages'
    )


class BaseBackbone(nn.Module, ABC):
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
        layers_name: The module list of the layers, as parameter names have it.
        embedding_names: Beginnings of the names of parameters before the first layer.
        table_name: The name of the absolute PE's table.
        pe_names: Names of the absolute PE's tables.
        prefix_tokens: Names of the tokens that can precede the patches.
        frozen_stages: -1 trains everything, 0 freezes the embeddings, k the first k layers too.
        position: The position encodings.
        embed_dims: Width D of the tokens.
        grid: Grid of tokens of the images that the PE is made for.
        num_prefix: How many tokens before the patches run along.
        pe_prefix: Rows of the PE tables before those of the patches.
        pe_norm: The last norm's norm of the PE, where the joining has one.
        without_prefix: What leaves the prefix tokens out, for messages.
        interpolate_mode: Of PE resizing.
    """

    checkpoint_adapter: Any = Lazy('mmlape.models.base.checkpoint', 'PLAIN')
    load_report: Any = None
    archs: ClassVar[Mapping[str, dict]] = {}
    model_names: ClassVar[Mapping[str, dict]] = {}
    out_types: ClassVar[tuple[str, ...]] = ('raw', 'featmap', 'avg_featmap')
    layers_name: ClassVar[str] = 'blocks'
    embedding_names: ClassVar[tuple[str, ...]] = ('patch_embed.', 'norm_pre.')
    table_name: ClassVar[str] = 'pos_embed'
    without_prefix: ClassVar[str] = 'take a model without it'
    prefix_tokens: tuple[str, ...] = ()
    arguments: dict[str, Any]
    in_channels: int = 3
    patch_size: int = 1
    strides: tuple[int, ...] = ()
    frozen_stages: int = -1
    position: Position
    embed_dims: int
    grid: Grid
    num_prefix: int = 0
    pe_names: Sequence[str] = ()
    pe_prefix: int = 0
    pe_norm: nn.Module | None
    interpolate_mode: str = 'bicubic'

    def __init__(self, init_cfg: dict | list[dict] | None = None):
        super().__init__()
        self.init_cfg, self.is_init = copy.deepcopy(init_cfg), False
        self.position = resolve_position('none', 'default', 'layernorm')
        self.recorded_arguments: dict[str, Any] = {}
        self.pe_norm = self.removal = None
        self.arguments = {}
        self._unfinished: RemovableHandle | None = self.register_forward_pre_hook(_refuse_unfinished)
        resize_on_load(self)

    def register_arguments(self, values: Mapping[str, Any], /, **others: Any) -> None:
        """Note what the backbone is built with, which its files record.

        The arguments of a subclass replace those of its base.

        Args:
            values: ``locals()`` of the constructor, as long as it has changed no argument; what is none is left out.
            **others: The constructor's own ``**kwargs``.
        """
        known = parameters(type(self))
        taken = {key: values[key] for key in known if key in values}
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
        self.add_tables(self.num_layers)
        self.add_encodings()
        if self.position.pe_norm and self.joining.at_last_norm and self.last_norm is not None:
            layer = self.all_layers[-1]
            self.pe_norm = build_pe_norm(self.position.pe_norm, layer.embed_dims, layer.norm_cfg)
        require_encodings(self)
        freeze(self)
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
        self.checkpoint_adapter.initialise(self)

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
        tokens = tuple(name for name in type(self).prefix_tokens if name not in self.prefix_tokens)
        return tokens + (('norm.', 'pe_norm.') if self.last_norm is None else ())

    # layers

    @property
    def all_layers(self) -> Sequence[nn.Module]:
        """The layers of all stages, in the order in which they run."""
        return getattr(self, self.layers_name)

    @property
    def layer_names(self) -> list[str]:
        """What the parameter names of each layer begin with."""
        return [f'{self.layers_name}.{number}.' for number in range(self.num_layers)]

    @property
    def num_layers(self) -> int:
        """How many layers there are."""
        return len(self.all_layers)

    def compile_units(self) -> Sequence[nn.Module]:
        """Return the parts that are compiled one at a time, each without a graph break."""
        return self.all_layers

    def get_layer_depth(self, param_name: str, prefix: str = '') -> tuple[int, int]:
        """Return the depth of a parameter for layer-wise learning rates, and the number of depths.

        It is 0 for the embeddings, k + 1 for layer k with its PE norm, and the number of layers + 1 for what follows;
        ``prefix`` is what the parameter's name begins with before this backbone's own names.
        """
        name = param_name.removeprefix(prefix)
        depths = self.num_layers + 2
        for number, layer in enumerate(self.layer_names, 1):
            if name.startswith(layer):
                return number, depths
        if name.startswith((*self.embedding_names, self.table_name, *self.prefix_tokens)):
            return 0, depths
        return depths - 1, depths

    def part_of(self, param_name: str) -> str:
        """Return the part of the network that a parameter belongs to, for figures over depth.

        Parts are 'patch_embed', 'position' (PE tables and prefix tokens), 'blocks.0' and so on for the layers, and
        'backbone' for what follows.
        """
        depth, depths = self.get_layer_depth(param_name)
        if depth == 0:
            return (
                'position' if param_name in (self.table_name, *self.pe_names, *self.prefix_tokens) else 'patch_embed'
            )
        return f'blocks.{depth - 1}' if depth < depths - 1 else 'backbone'

    # freezing

    def frozen_modules(self) -> list[nn.Module]:
        """Return the modules that ``frozen_stages`` freezes."""
        if self.frozen_stages < 0:
            return []
        names = [*(name.rstrip('.') for name in self.embedding_names), 'pos_drop']
        embeddings = [getattr(self, name, None) for name in names]
        layers = self.all_layers[: self.frozen_stages]
        return [part for part in embeddings if isinstance(part, nn.Module)] + list(layers)

    def train(self, mode: bool = True):
        """Set the mode; frozen parts stay in evaluation mode."""
        super().train(mode)
        for module in self.frozen_modules():
            module.eval()
        return self

    # position

    @property
    def joining(self) -> Joining:
        """How the layers and the last norm join the PE."""
        return self.position.joining

    @property
    def last_norm(self) -> nn.Module | None:
        """The norm behind the last layer, if there is one."""
        return getattr(self, 'norm', None)

    def table_tokens(self) -> dict[str, int]:
        """Return the prefix tokens that the PE tables have rows for, and how many each."""
        return dict.fromkeys(self.prefix_tokens[: self.pe_prefix], 1)

    def stored_tables(self) -> Sequence[str]:
        """Return the names of the absolute PE's tables in files."""
        return self.pe_names

    def table_grid(self, name: str, grid: Grid) -> Grid:
        """Return the grid of a PE table of a model whose first layer's tokens have the grid ``grid``."""
        return grid

    def resize_table(self, table: Tensor, src: Grid, dst: Grid, num_prefix: int) -> Tensor:
        """Resize a file's table (1, num_prefix + N_src, D) to another grid."""
        return self.position.absolute.resize(table, src, dst, num_prefix, self.interpolate_mode)

    def add_tables(self, num_layers: int) -> None:
        """Add the absolute PE, if it is not there yet: parameters if it is trainable, else buffers, saved as well."""
        if self.position.absolute is None or self.pe_names:
            return
        per_layer = self.position.joining.table_per_layer
        self.pe_names = [f'{self.table_name}{i}' for i in range(num_layers)] if per_layer else [self.table_name]
        for name in self.pe_names:
            self.add_table(name, self.embed_dims)

    def add_table(self, name: str, dims: int) -> None:
        """Add one table of the absolute PE, for the grid that ``table_grid`` says, in torch's default dtype.

        A half one is that of a float32 model which is cast afterwards.
        """
        kind, dtype = self.position.absolute, torch.get_default_dtype()
        table = kind.table(self.table_grid(name, self.grid), dims, self.pe_prefix)
        table = table.to(torch.promote_types(dtype, torch.float32)).to(dtype)
        if kind.trainable:
            self.register_parameter(name, nn.Parameter(table))
        else:
            self.register_buffer(name, table)

    def add_encodings(self) -> None:
        """Let the encodings between layers follow theirs, if they do not yet.

        Raises:
            ConfigError: If one follows a layer that is not there.
        """
        if not self.position.between or any(layer.encodings for layer in self.all_layers):
            return
        for number, layer in enumerate(self.all_layers):
            for encoding in self.position.build_between():
                wrong = [after for after in encoding.after if not 0 <= after < self.num_layers]
                if wrong:
                    raise ConfigError(
                        f'pe_type={encoding.name!r}: after={wrong[0]} is no layer; choose from 0 '
                        f'to {self.num_layers - 1}'
                    )
                if number in encoding.after:
                    layer.add_encoding(encoding)

    def layer_grids(self, grid: Grid) -> list[Grid]:
        """Return the grid of each layer's tokens, from that of the first layer's patches."""
        return [grid] * self.num_layers

    def change_stage(self, number: int, x: Tensor, pe: Stream, grid: Grid) -> tuple[Tensor, Stream]:
        """Return tokens (B, N, D) and PE behind a layer, of tokens of ``grid``, as the next layer receives them."""
        return x, pe

    def norm_places(self) -> NormPlaces:
        """Return where there are norms of the PE."""
        layers = tuple(self.position.pe_norm_of(number) is not None for number in range(self.num_layers))
        last = None if self.last_norm is None else self.pe_norm is not None
        return NormPlaces(layers, last, staged=self.position.staged)

    def position_stream(self, grid: Grid, num_prefix: int) -> Stream:
        """Read the PE for a grid of patch tokens, for a model with ``num_prefix`` tokens before them: 0, or all.

        Tokens without a row in the tables have none here either.

        Returns:
            (1, rows, D) with as many rows as tokens that have one, num_prefix + N or N; a tuple of those where
            each layer has a table; None without an absolute PE.
        """
        tables = [self.read_table(name, grid, self.pe_prefix) for name in self.pe_names]
        if num_prefix < self.pe_prefix:
            tables = [table[:, self.pe_prefix :] for table in tables]
        if self.position.joining.table_per_layer:
            return tuple(tables)
        return tables[0] if tables else None

    def read_table(self, name: str, grid: Grid, num_prefix: int) -> Tensor:
        """Read one table for a grid of tokens, (1, num_prefix + N, D)."""
        made_for, mode = self.table_grid(name, self.grid), self.interpolate_mode
        return self.position.absolute.resize(getattr(self, name), made_for, grid, num_prefix, mode)


def require_encodings(backbone: BaseBackbone) -> None:
    """Check that layers have what the position encodings need in each of them.

    Raises:
        ConfigError: If one lacks it, or if the joining is for patch tokens only and there are others.
    """
    position, model = backbone.position, type(backbone).__name__
    if position.joining.patches_only and backbone.num_prefix:
        raise ConfigError(
            f'{model}: pe_joining={position.joining.name!r} is for pooled patch tokens, and this '
            f'model has {", ".join(backbone.prefix_tokens)}: {backbone.without_prefix}'
        )
    declared = [cfg['type'] for cfg in position.inside]
    for number, layer in enumerate(backbone.all_layers if declared or position.pe_norm else ()):
        built = [encoding.name for encoding in getattr(getattr(layer, 'attention', None), 'encodings', ())]
        if built != declared:
            raise ConfigError(
                f'{model}: pe_type says {declared or "nothing"} inside attention, but layer '
                f'{number} has {built or "nothing"}; build its attention with '
                'encodings=self.position.build_inside() and a slot'
            )
        wanted, norm = position.pe_norm_of(number), getattr(layer, 'pe_norm', None)
        if (wanted is None) != (norm is None):
            norms = 'does not norm' if wanted is None else 'norms'
            raise ConfigError(
                f'{model}: pe_joining={position.joining.name!r} {norms} the PE in layer {number}, '
                f'which has {"a" if norm else "no"} pe_norm; build it with '
                f'pe_norm=self.position.pe_norm_of({number})'
            )
