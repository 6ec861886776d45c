"""The gate for what no user has written: configs in checkpoints and in folders of runs, and descriptions of models.

Nothing is built from such values before `admit` has returned them: a type is a name that a registry holds, all else
are numbers and texts, in bounds. What the texts name is out of reach while they are built:
`mmlape.checkpoint.closed_world`.
"""

import contextlib
import inspect
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from torch import Tensor, nn
from torch.nn.modules import module as registration

from mmlape.checkpoint import opening
from mmlape.checkpoint.closed_world import closed, no_imports_by_name
from mmlape.errors import CheckpointError, MMLaPEError, shown

SCOPES = ('mmengine', 'mmdet', 'mmseg', 'mmpretrain', 'mmlape')
"""Packages whose registries are asked, and imported for that."""
REPLACING = 'mmlape'
"""The scope that MMEngine gives to what a base named ``mmlape::...`` has; a name without a scope means there what it
means in the config's default scope."""
MODELS: dict[str, Callable[[str], Any]] = {}
"""Models that need no OpenMMLab: what returns the class of a name, by its scope. As the next tables,
a package fills it whose types these are."""
KINDS: list[Callable[[str], Any]] = []
"""What returns the class of a name that is in no registry of MMEngine."""
WORDS = {'RoIAlign', 'RoIPool', 'dilation', 'nms', 'nms_match', 'offset', 'soft_nms'}
"""Values of ``type`` that constructors take, and that are in no registry."""
LEFT_OUT = (
    'backend_args', 'batch_augments', 'checkpoint', 'checkpoint_path', 'download', 'file_client_args', 'init_cfg',
    'load_from', 'outfile_prefix', 'output_dir', 'pretrained', 'teacher_checkpoint', 'teacher_ckpt', 'train_cfg',
)  # fmt: skip
"""Keys of initial weights, files to write, downloads and stores other than the disk, and those of training only."""
TEXTS = {'classes', 'metainfo', 'palette', 'templates'}
"""Keys whose lists hold any text, where a config is published."""
NAMED = ['mode', 'model_name']
"""Keys of words that are published without a constructor that lists them."""
SIDES = ('crop_size', 'img_size', 'scale', 'size')
"""Keys of numbers of pixels."""
MAX_DEPTH, MAX_VALUES, MAX_TEXT = 40, 200_000, 1000
MAX_SIDE, MAX_INTEGER, MAX_NUMBER = 2**14, 2**20, 1e9
FREE_PARTS, FREE_VALUES = 50_000, 2**28
"""Layers and tensors, and values in them, that a model may have beyond its file, such as a teacher."""

_TYPE = re.compile(r'((\w+\.)?[A-Za-z_]|torchvision/)[\w-]*')
_WORD = re.compile(r'[A-Za-z_][\w+-]*')
_NAME_OF_TIMM = re.compile(r'\w+(\.\w+)?')
_SPELT = {'arch': re.compile(r'\w[\w/+-]*'), 'model_name': _NAME_OF_TIMM, 'timm_model': _NAME_OF_TIMM}
"""Words of another spelling, by their key."""


def admit(
    values: Mapping[str, Any],
    where: object,
    registries: Collection[str] = ('MODELS',),
    scope: str = 'mmengine',
    known: Collection[str] = (),
) -> dict[str, Any]:
    """Return the values of a config or of a description as they may be built: None at the keys of ``LEFT_OUT``.

    After ``trust_checkpoints`` everything is returned as it is.

    Args:
        values: Of a file, or of the folder of a run.
        where: What messages begin with.
        registries: Names of MMEngine's registries that hold the types, beside those of this package.
        scope: Of the types without a scope.
        known: More types.

    Raises:
        CheckpointError: For a type that no registry holds, a value that is more than a number or a
            text, and numbers that no model has; the message names the key.
    """
    if opening.is_trusted():
        return dict(values)
    try:
        return _Gate(registries, known, scope).mapping(values, (), scope)
    except ValueError as refused:
        raise CheckpointError(
            f'{where}: refused, {refused}; give a config of your own with the weights, or, if you '
            'trust the source of the file, pass --trust-checkpoint'
        ) from None


def published(
    values: Mapping[str, Any], registries: Collection[str] = ('MODELS',), scope: str = 'mmengine'
) -> dict[str, Any]:
    """Return the values of a config that may be published, as `admit` would return them.

    A text is published where it is a type of a registry, the name of a class of the data, or a word
    that an argument of such a type's constructor takes; so nothing names a file, a machine or a
    person. Arguments are those of `admit`.

    Raises:
        ValueError: For any other value; the message names its key.
    """
    return _Gate(registries, (), scope, strict=True).mapping(values, (), scope)


def _refused(place: tuple[str, ...], reason: str) -> ValueError:
    """Return the error of a value that is not admitted."""
    return ValueError(f'{".".join(place)[-100:] or "it"} {reason}')


class _Gate:
    """Checks the values of one config; ``place`` are the keys above a value."""

    def __init__(
        self, registries: Collection[str], known: Collection[str], default_scope: str, strict: bool = False
    ) -> None:
        self.registries, self.known, self.strict = registries, known, strict
        self.default_scope = default_scope
        self.count = 0

    def find(self, name: str, scope: str) -> Any:
        """Return what is built by a name in a scope; None if nothing."""
        kind = None
        if scope == REPLACING and '.' not in name:
            kind = find_type(name, self.registries, self.default_scope)
        return kind or find_type(name, self.registries, scope)

    def mapping(self, node: Mapping, place: tuple[str, ...], scope: str) -> dict[str, Any]:
        """Return a dict; ``scope`` is the one of types without one."""
        scope_here = node.get('_scope_', scope)
        if scope_here not in SCOPES:
            raise _refused((*place, '_scope_'), f'is {_brief(scope_here)}, which has no models here')
        out = {}
        for key, value in node.items():
            if not isinstance(key, str) or len(key) > MAX_TEXT or (self.strict and not _WORD.fullmatch(key)):
                raise _refused(place, f'has the key {_brief(key)}, which no model has')
            if self.strict and _has_text(value) and key not in ('type', '_scope_', *TEXTS):
                self.check_name(key, node, (*place, key), scope_here)
            out[key] = None if key in LEFT_OUT else self.value(value, (*place, key), scope_here)
        if 'type' in node:
            out |= _downloads(self.find(node['type'], scope_here))
        return out

    def check_name(self, key: str, node: Mapping, place: tuple[str, ...], scope: str) -> None:
        """Check that the constructor of a dict's type takes a key whose value is a text."""
        name = str(node.get('type'))
        if key not in {*NAMED, *_arguments(self.find(name, scope) or _of_kinds(name))}:
            raise _refused(place, 'is a text that no constructor takes')

    def value(self, value: Any, place: tuple[str, ...], scope: str) -> Any:
        """Return a value of any kind."""
        self.count += 1
        if self.count > MAX_VALUES or len(place) > MAX_DEPTH:
            raise _refused(place[:5], 'has more values, or deeper ones, than any model')
        if place[-1] in ('type', 'constructor'):
            self.check_type(value, place, scope)
        elif isinstance(value, Mapping):
            return self.mapping(value, place, scope)
        elif isinstance(value, list | tuple):
            return type(value)(self.value(item, (*place, ''), scope) for item in value)
        elif isinstance(value, str):
            self.check_text(value, place)
        elif isinstance(value, int | float):  # True and False among them
            _check_number(value, place)
        elif value is not None:
            raise _refused(place, f'is a {type(value).__name__}, no plain value')
        return value

    def check_type(self, name: Any, place: tuple[str, ...], scope: str) -> None:
        """Check that a registry holds a type."""
        if not isinstance(name, str) or not _TYPE.fullmatch(name):
            raise _refused(place, f'is {_brief(name)}, no name of a type')
        if not (name in self.known or name in WORDS or self.find(name, scope) or _of_kinds(name)):
            raise _refused(place, f'is {_brief(name)}, which no registry holds (is its module imported?)')

    def check_text(self, value: str, place: tuple[str, ...]) -> None:
        """Check the length of a text; of one that is published, that it is a word, or stands in a list of any text."""
        if len(value) > MAX_TEXT:
            raise _refused(place, f'is a text of {len(value):,} characters')
        pattern = _SPELT.get(place[-1], _WORD)
        any_text = not self.strict or (place[-1] == '' and not TEXTS.isdisjoint(place))
        if value and not any_text and not pattern.fullmatch(value):
            raise _refused(place, f'is {_brief(value)}, which could name a file or an address')


def _of_kinds(name: str) -> Any:
    return next(filter(None, (kind(name) for kind in KINDS)), None)


def find_type(name: str, registries: Collection[str], default_scope: str) -> Any:
    """Return what MMEngine builds by a name, of its scope or of the default one; None if no registry holds it."""
    scope, _, plain = name.rpartition('.')
    scope_of_name = scope or default_scope
    if scope_of_name in MODELS and (kinds := MODELS[scope_of_name](plain)):
        return kinds
    if scope and scope not in SCOPES:
        return None
    try:
        from mmengine import registry as root
    except ImportError:
        return None
    with no_imports_by_name():
        kinds = [getattr(root, key).get(f'{scope_of_name}.{plain}') for key in registries]
    return next(filter(None, kinds), None)


def _has_text(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return any(map(_has_text, value))
    return isinstance(value, str)


def _arguments(kind: Any) -> set[str]:
    """Return the names that the constructors of a class and of those above it take."""
    owners = kind.__mro__ if isinstance(kind, type) else ()
    constructors = [vars(owner)['__init__'] for owner in owners[:-1] if '__init__' in vars(owner)]
    return {name for init in constructors for name in inspect.signature(init).parameters}


def _downloads(kind: Any) -> dict[str, None]:
    """Return what switches off the downloads that a class makes by default."""
    if not isinstance(kind, type):
        return {}
    parameters = inspect.signature(kind.__init__).parameters.values()  # a metaclass hides them
    return {key.name: None for key in parameters if key.name in LEFT_OUT and key.default is True}


def _check_number(value: float, place: tuple[str, ...]) -> None:
    last = next((key for key in reversed(place) if key), '')
    most = MAX_SIDE if last in SIDES else MAX_INTEGER if isinstance(value, int) else MAX_NUMBER
    if not -most <= value <= most:  # NaN, too
        raise _refused(place, f'is {_brief(value)}, and {most:,.0f} the most that is built')


def _brief(value: object) -> str:
    text = f'a {type(value).__name__}' if isinstance(value, Mapping | list | tuple) else repr(value)
    return text if len(text) <= 80 else f'{text[:77]}...'


@contextlib.contextmanager
def limited(where: object, tensors: Mapping[str, Any]) -> Iterator[None]:
    """Refuse, before its memory is taken, a model that is far larger than its file; see also `closed`.

    Args:
        where: What messages begin with.
        tensors: Of the file.

    Raises:
        CheckpointError: If a model is built inside the block that has far more layers, tensors or
            values.
    """
    sizes = [value.numel() for value in tensors.values() if isinstance(value, Tensor)]
    parts, values = FREE_PARTS + 20 * len(sizes), FREE_VALUES + 2 * sum(sizes)

    def count(module: nn.Module, name: str, part: Any) -> None:
        nonlocal parts, values
        parts -= 1
        values -= part.numel() if isinstance(part, Tensor) else 0
        if min(parts, values) < 0 and not opening.is_trusted():
            raise CheckpointError(
                f'{where}: refused, its config is of a far larger model than its weights; give a '
                'config of your own with them'
            )

    with contextlib.ExitStack() as stack:
        stack.enter_context(closed())
        for register in (
            registration.register_module_parameter_registration_hook,
            registration.register_module_buffer_registration_hook,
            registration.register_module_module_registration_hook,
        ):
            stack.callback(register(count).remove)
        yield


@contextlib.contextmanager
def building(where: object, tensors: Mapping[str, Any]) -> Iterator[None]:
    """Build a model from admitted values, which may still not fit each other; see `limited`.

    Raises:
        CheckpointError: For whatever the values make the block raise.
    """
    try:
        with limited(where, tensors):
            yield
    except MMLaPEError as error:
        if str(where) in str(error):
            raise
        raise type(error)(f'{where}: {error}') from error
    except Exception as error:
        raise CheckpointError(f'{where}: its config builds no model that works ({shown(error)})') from error
