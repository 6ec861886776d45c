"""Recognise the layout of a checkpoint from its keys, and give its tensors the names of a backbone here.

Backbones name the adapters that have layouts; nothing here knows one of them. A layout that weights can be written
in says what its models have: all else that a file tells is refused by name, whatever a model comes to have.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from mmlape.checkpoint.exact_loading import Normalisation
from mmlape.checkpoint.metadata import grid_in, parts_with_adapter, read_metadata, stored_config
from mmlape.checkpoint.opening import OpenedFile
from mmlape.errors import CheckpointError
from mmlape.kinds import BACKBONES, POSITION_ENCODINGS

CLASS_HEADS = ('head.', 'head_dist.', 'pre_logits.')
OTHER_PARTS = (
    'fc_norm.', 'attn_pool.', 'decode_head.', 'auxiliary_head.', 'neck.', 'rpn_head.', 'roi_head.',
)  # fmt: skip
_MMPRETRAIN_HEAD = re.compile(r'^head\.layers\.(head|head_dist|pre_logits)\.')

Tensors = dict[str, Tensor]


@dataclass(frozen=True)
class Layout:
    """One way in which files name the tensors of a backbone."""

    name: str  # for reports
    signs: tuple[str, ...]  # regular expressions that each match the beginning of a key
    rename: Callable[[Tensors], Tensors] | None = None  # translates all tensors, of heads too; None keeps the names
    normalisation: Normalisation | None = None  # of the images, if it is that of every such file
    complete: bool = False  # whether it is a complete model, whose heads and neck belong to it
    absent: str | None = None  # regular expression that matches the beginning of no key
    # whether parts of it stand beside ``backbone.``, so that signs and names are those of the file
    beside: bool = False
    refused: str = ''  # why such files cannot be loaded; '' if they can
    # arguments that leave no trace in such files, but that all of them have
    arguments: Mapping[str, Any] = field(default_factory=dict)
    # the tokens that all its tables have rows for, where a file has such a token; None where files differ
    rows: tuple[str, ...] | None = None

    def named(self, stored: Tensors) -> Tensors | None:
        """Return a file's tensors by the names that this layout knows, or None if they are not of it."""
        tensors = stored if self.complete or self.beside else _strip_backbone(stored)
        there = all(any(re.match(sign, name) for name in tensors) for sign in self.signs)
        unwanted = self.absent and any(re.match(self.absent, name) for name in tensors)
        return tensors if there and not unwanted else None


@dataclass
class Weights:
    """The backbone of a checkpoint under this package's names."""

    layout: str  # the name of the layout
    tensors: Tensors  # of the backbone, by name
    # of a classifier: ``head.*``, ``head_dist.*`` and ``pre_logits.*``
    head_tensors: Tensors = field(default_factory=dict)
    # keys that belong to something else (detection and segmentation heads, necks)
    dropped: list[str] = field(default_factory=list)
    # what the file records of the backbone, see ``mmlape.checkpoint.metadata``
    recorded: dict[str, Any] = field(default_factory=dict)
    normalisation: Normalisation | None = None  # of the images; None if it is unknown
    config: str = ''  # the text of the configuration in the file
    path: str = ''  # of the file, for messages
    arguments: Mapping[str, Any] = field(default_factory=dict)  # of the layout
    rows: tuple[str, ...] | None = None  # of the layout

    @property
    def grid(self) -> tuple[int, int] | None:
        """The recorded grid of the PE; None if it is unknown."""
        return grid_in(self.recorded.get('grid'))

    @property
    def is_described(self) -> bool:
        """Whether the file records more of its model than the grid that a state dict brings along."""
        return bool(self.recorded.keys() - {'grid'})

    def has(self, pattern: str) -> bool:
        """Check whether a name matches the regular expression from its beginning."""
        return any(re.match(pattern, name) for name in self.tensors)

    def below(self, prefix: str) -> Tensors:
        """Return the tensors of a submodule under the names that they have there."""
        return {name.removeprefix(prefix): value for name, value in self.tensors.items() if name.startswith(prefix)}


def rename_keys(tensors: Tensors, names: Iterable[tuple[str, str]]) -> Tensors:
    """Replace in each name the first of some patterns that is found in it."""
    out = {}
    for name, value in tensors.items():
        for pattern, replacement in names:
            name, count = re.subn(pattern, replacement, name)
            if count:
                break
        out[name] = value
    return out


class NameTable:
    """Names in a layout, and ours: one table that reads and writes, so that both ways agree.

        NameTable({'transformer.resblocks.#.ln_1.': 'blocks.#.norm1.', 'ln_post.': 'norm.'})

    Entries are beginnings of names; '#' is a number, which stays. Of several that fit, the first counts, and a name
    that none fits stays.
    """

    def __init__(self, names: Mapping[str, str]):
        self._read = _patterns(names.items())
        self._write = _patterns((ours, theirs) for theirs, ours in names.items())

    def read(self, tensors: Tensors) -> Tensors:
        """Return tensors of the layout under our names."""
        return rename_keys(tensors, self._read)

    def write(self, tensors: Tensors) -> Tensors:
        """Return our tensors under the names of the layout."""
        return rename_keys(tensors, self._write)


def _patterns(names: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return regular expressions, and what replaces them, for beginnings of names."""
    pairs = []
    for old, new in names:
        first, *others = new.split('#')
        replacement = first + ''.join(rf'\{number}{part}' for number, part in enumerate(others, 1))
        pairs.append((f'^{re.escape(old)}'.replace(r'\#', r'(\d+)'), replacement))
    return pairs


def with_batch_axis(table: Tensor) -> Tensor:
    """Return a table as (1, rows, D); the public 1-D sinusoids have no batch axis."""
    return table[None] if table.ndim == 2 else table


def join_qkv(tensors: Tensors) -> Tensors:
    """Return tensors with each layer's queries, keys and values, ``attn.q``, ``attn.k`` and ``attn.v``, in one map.

    Where keys have no bias, those of queries and values stay apart, as BEiT names them.
    """
    out = {name: value for name, value in tensors.items() if not re.search(r'\.attn\.[qkv]\.', name)}
    for name in (name for name in tensors if '.attn.q.' in name):
        of_each = [name.replace('.attn.q.', f'.attn.{part}.') for part in 'qkv']
        if all(part_name in tensors for part_name in of_each):
            joined = torch.cat([tensors[part_name] for part_name in of_each])
            out[name.replace('.attn.q.', '.attn.qkv.')] = joined
            continue
        for part_name in of_each:
            if part_name in tensors:
                out[re.sub(r'\.bias$', '_bias', part_name)] = tensors[part_name]
    return out


def split_qkv(tensors: Tensors) -> Tensors:
    """Reverse ``join_qkv``."""
    out: Tensors = {}
    for name, value in tensors.items():
        if '.attn.qkv.' in name:
            out |= {name.replace('.attn.qkv.', f'.attn.{part}.'): chunk for part, chunk in zip('qkv', value.chunk(3))}
        else:
            out[re.sub(r'\.attn\.([qv])_bias$', r'.attn.\1.bias', name)] = value
    return out


def recognise(file: OpenedFile, layouts: Iterable[Layout], model: nn.Module | None = None) -> Weights:
    """Find the first layout that fits a file's tensors, and translate them; ``model`` is for messages.

    Where none fits, what stands before all names of a model is left out, such as ``model.`` of Lightning.

    Raises:
        CheckpointError: If none fits, or one that cannot be loaded.
    """
    layouts = list(layouts)
    stored = _one_model(file.tensors, file.path, layouts)
    weights = _translated(file, stored, layouts)
    if weights is not None:
        return weights
    names = ', '.join(dict.fromkeys(layout.name for layout in layouts)) or 'none: its checkpoint_adapter has no signs'
    first = sorted(_strip_backbone(stored))[:6]
    raise CheckpointError(
        f'checkpoint {file.path}: matches no known layout ({names}); its first keys are {first}'
        f'{whose_file(file, model) if model else ""}'
    )


def _fits(stored: Tensors, layouts: Iterable[Layout]) -> bool:
    return any(layout.named(stored) is not None for layout in layouts)


def _translated(file: OpenedFile, stored: Tensors, layouts: Iterable[Layout]) -> Weights | None:
    """Translate tensors by the first layout that fits; None if none does."""
    layout = next((layout for layout in layouts if layout.named(stored) is not None), None)
    if layout is None:
        return None
    if layout.refused:
        raise CheckpointError(f'checkpoint {file.path} is of {layout.name}, which cannot be loaded: {layout.refused}')
    tensors = layout.named(stored) or {}
    try:
        tensors = layout.rename(tensors) if layout.rename else tensors
    except CheckpointError as error:
        raise CheckpointError(f'checkpoint {file.path}: {error}') from error
    others = () if layout.complete else ('/', *OTHER_PARTS)
    heads = () if layout.complete else CLASS_HEADS
    dropped = [name for name in tensors if name.startswith(others)]
    head_tensors = {name: v for name, v in tensors.items() if name.startswith(heads) and name not in dropped}
    metadata = read_metadata(file)
    return Weights(
        layout.name,
        {name: value for name, value in tensors.items() if name not in dropped and name not in head_tensors},
        head_tensors,
        [name.removeprefix('/') for name in dropped],
        recorded=metadata.backbone,
        normalisation=metadata.normalisation or layout.normalisation,
        config=stored_config(file),
        path=file.path,
        arguments=layout.arguments,
        rows=layout.rows,
    )


def _one_model(stored: Tensors, path: object, layouts: Sequence[Layout] = ()) -> Tensors:
    """Return the tensors of the model in a file that a layout fits, without what stands before its names.

    They are all tensors if a layout of any backbone fits those. Without ``layouts``, the model is of any backbone.

    Raises:
        CheckpointError: If there are several models, such as a student and a teacher.
    """
    if _fits(stored, layouts) or _fits(stored, _every_layout()):
        return stored
    starts: dict[str, None] = {}
    layouts = [layout for layout in layouts or _every_layout() if layout.signs]
    for layout in layouts:
        sign = re.compile(rf'(?:^|(?<=\.))(?:{layout.signs[0]})')
        starts |= {name[: place.start()]: None for name in stored for place in sign.finditer(name)}
    inner = {}
    for start in filter(None, starts):
        outer = start.removesuffix('backbone.')
        below = {name.removeprefix(outer): value for name, value in stored.items() if name.startswith(outer)}
        if outer and _fits(below, layouts):
            inner[outer] = below
    # a model that stands in another one is a part of it
    inner = {
        outer: below
        for outer, below in inner.items()
        if not any(outer != other and outer.startswith(other) for other in inner)
    }
    if len(inner) > 1:
        raise CheckpointError(
            f'checkpoint {path}: has {len(inner)} models ({", ".join(map(repr, inner))}): give '
            'mmlape.load_weights a dict with the tensors of one, without what stands before their names'
        )
    return next(iter(inner.values()), stored)


def backbones() -> Iterator[Any]:
    """Yield every registered backbone, or complete model, with an adapter; those imported on first use last."""
    yielded: list[type] = []
    for import_some in (BACKBONES.import_from_location, BACKBONES.import_all):
        import_some()
        new = [cls for cls in BACKBONES.module_dict.values() if cls not in yielded]
        yield from (cls for cls in new if hasattr(cls, 'checkpoint_adapter'))
        yielded += new


def _every_layout() -> Iterator[Layout]:
    for backbone in backbones():
        yield from backbone.checkpoint_adapter.layouts(backbone)


def recognise_backbone(file: OpenedFile) -> tuple[type, Weights]:
    """Find the class of the registered backbone that a file's tensors are of, and translate them.

    Raises:
        CheckpointError: If no layout of any backbone fits.
    """
    stored = _one_model(file.tensors, file.path)
    for backbone in backbones():
        adapter: Any = backbone.checkpoint_adapter
        weights = _translated(file, stored, adapter.layouts(backbone))
        if weights and adapter.owns(backbone, weights):
            return backbone, weights
    recognise(file, _every_layout())
    raise CheckpointError(f'checkpoint {file.path}: no registered backbone takes it for its own')


def whose_file(file: OpenedFile, model: nn.Module) -> str:
    """Say of which other model a file is, for the end of a message; '' if that is not known."""
    try:
        backbone, weights = recognise_backbone(file)
    except CheckpointError:
        return ''
    classes = {type(part) for part in parts_with_adapter(model).values()}
    if not classes or any(issubclass(other, backbone) or issubclass(backbone, other) for other in classes):
        return ''
    names = ' and '.join(sorted(other.__name__ for other in classes))
    return f'; it is a file of mmlape.{backbone.__name__} ({weights.layout} layout), and the model has {names}'


def _strip_backbone(tensors: Tensors) -> Tensors:
    """Return what stands under ``backbone.`` without it; the rest keeps its names, a classifier's heads get DeiT's."""
    if not any(name.startswith('backbone.') for name in tensors):
        return tensors
    renamed = {}
    for name, value in tensors.items():
        name = _MMPRETRAIN_HEAD.sub(r'\1.', name)
        # a neck's 'layers.0.' must not be taken for the backbone's
        renamed[name.removeprefix('backbone.') if name.startswith(('backbone.', *CLASS_HEADS)) else f'/{name}'] = value
    return renamed


@dataclass(frozen=True)
class Target:
    """A layout that weights can be written in; without ``names``, it has a place for everything."""

    rename: Callable[[Tensors], Tensors] | None = None  # translates the tensors; None keeps the names
    wrapper: str | None = None  # key of the file that holds them; None for the file itself
    part: str = ''  # name of the backbone in a complete model
    names: str | None = None  # regular expression that the complete name of each tensor matches
    # what each of its models has, in words, and the regular expression that the complete name of a tensor then matches
    needed: Mapping[str, str] = field(default_factory=dict)
    # position encodings that its models can have, a tuple for each choice of those together: names in
    # ``POSITION_ENCODINGS``, or base classes of any kind
    encodings: tuple[tuple[str | type, ...], ...] = ()
    # values that a model's arguments can have, None for all; others have their default
    arguments: Mapping[str, Sequence | None] = field(default_factory=dict)
    # returns what else has no place, such as two things that exclude one another
    clashes: Callable[[Weights], list[str]] | None = None
    # beginnings of the names of a classifier's heads; with any other, all heads are left out
    head_names: tuple[str, ...] = ('head.', 'head_dist.')
    # does before ``rename`` what depends on the rows of a file's tables
    rename_table: Callable[[Weights, Tensors], Tensors] | None = None

    def missing(self, weights: Weights, described: Mapping[str, Any], defaults: Mapping[str, Any]) -> list[str]:
        """Return what of a file's model this layout has no place for.

        ``described`` is what the file records of the model's arguments; ``defaults`` are those of
        the arguments that leave no trace in a file but its metadata. Of a file without metadata,
        the names of its tensors decide.
        """
        if self.names is None:
            return []
        pe_type = described.get('pe_type', ())
        missing = [] if pe_type == () or self._has_place_for(pe_type) else [f'pe_type={pe_type!r}']
        for key, value in described.items():
            taken = self.arguments.get(key, [defaults[key]] if key in defaults else ())
            if key != 'pe_type' and taken is not None and value not in taken:
                missing.append(f'{key}={value!r}')
        missing += self.clashes(weights) if self.clashes else []
        if missing:
            return missing
        others = [name for name in weights.tensors if not re.fullmatch(self.names, name)]
        numberless = dict.fromkeys(re.sub(r'\.\d+\.', '.*.', name) for name in others)
        absent = [
            f'a model without {what}'
            for what, pattern in self.needed.items()
            if not any(re.fullmatch(pattern, name) for name in weights.tensors)
        ]
        return [*numberless, *absent]

    def translate(self, weights: Weights, tensors: Tensors) -> Tensors:
        """Return tensors of a file, ``weights`` and perhaps heads, under the names of this layout."""
        tensors = self.rename_table(weights, tensors) if self.rename_table else tensors
        return self.rename(tensors) if self.rename else tensors

    def takes_heads(self, weights: Weights) -> bool:
        """Check whether there is a place for a classifier's heads."""
        return self.names is None or all(name.startswith(self.head_names) for name in weights.head_tensors)

    def _has_place_for(self, pe_type: object) -> bool:
        entries = pe_type if isinstance(pe_type, list | tuple) else [pe_type]
        names = [str(entry.get('type') if isinstance(entry, Mapping) else entry) for entry in entries]
        names = [name for name in names if name != 'none']
        return any(
            len(choice) == len(names) and all(_is_one_of(name, choice) for name in names) for choice in self.encodings
        )


def _is_one_of(name: str, choice: tuple[str | type, ...]) -> bool:
    kind = POSITION_ENCODINGS.get(name) or object
    return any(issubclass(kind, entry) if isinstance(entry, type) else name == entry for entry in choice)
