"""The gate for what no user has written: configs in checkpoints and in folders of runs, and descriptions of models.

Nothing is built from such values before `admit` has returned them: a type is a name that a registry
holds, all else are numbers and words. So none of them is imported, called, evaluated or opened.
"""

import ast
import contextlib
import functools
import inspect
import re
import sys
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from importlib.util import find_spec
from typing import Any

from torch import Tensor, nn
from torch.nn.modules import module as registration

from mmlape.errors import CheckpointError, MMLaPEError, failed_import, shown
from mmlape.weights import reading

SCOPES = ('mmengine', 'mmdet', 'mmseg', 'mmpretrain', 'mmlape')
"""Packages whose registries are asked, and imported for that."""
REPLACING = 'mmlape'
"""The scope that MMEngine gives to what a base named ``mmlape::...`` has; a name without a scope means there what it
means in the config's default scope."""
MODELS: dict[str, Callable[[str], Any]] = {}
"""Models that need no OpenMMLab: what returns the class of a name, by its scope. As the next tables,
a package fills it whose types these are."""
KINDS: dict[str, Callable[[str], Any]] = {}
"""What returns the class of a name that is in no registry of MMEngine, by the key of the dict."""
TOOLBOXES = ('mmcv', 'mmdet', 'mmengine', 'mmpretrain', 'mmseg', 'torch', 'torchvision')
"""Packages of whose types those of some kinds may be built; any other package was imported by the user."""
PLACES = tuple(
    f'{place}.'
    for place in (
        # layers, models and their parts
        *('cnn.bricks', 'model', 'nn', 'ops', 'structures.sampler', 'utils.dl_utils'),
        *('models.assigners', 'models.backbones', 'models.classifiers', 'models.data_preprocessor'),
        *('models.data_preprocessors', 'models.decode_heads', 'models.dense_heads', 'models.detectors'),
        *('models.heads', 'models.layers', 'models.losses', 'models.necks', 'models.roi_heads', 'models.seg_heads'),
        *('models.segmentors', 'models.test_time_augs', 'models.tta', 'models.utils'),
        *('models.task_modules.assigners', 'models.task_modules.coders', 'models.task_modules.prior_generators'),
        'models.task_modules.samplers',
        # data and their evaluation
        *('dataset', 'datasets.dataset_wrappers', 'datasets.samplers', 'datasets.transforms', 'transforms'),
        *('evaluation.metrics.coco_metric', 'evaluation.metrics.coco_panoptic_metric'),
        *('evaluation.metrics.iou_metric', 'evaluation.metrics.multi_label', 'evaluation.metrics.single_label'),
        *('evaluator.evaluator', 'runner.loops'),
        # optimisers
        *('engine.optimizers', 'optim'),
    )
)
"""Where in a toolbox the types are that may be built: beginnings of names of modules, without the toolbox's."""
LIBRARIES = {
    'PIL', 'albumentations', 'cv2', 'faster_coco_eval', 'imagecorruptions', 'instaboostfast', 'matplotlib', 'mmlape',
    'numpy', 'osgeo', 'panopticapi', 'parrots', 'prettytable', 'pycocotools', 'scipy', 'skimage', 'sklearn',
    'terminaltables', 'timm', 'torch_npu', 'typing_extensions', *TOOLBOXES,
}  # fmt: skip
"""Packages that the module of such a type may import: not those that find models by a name or a config of theirs."""
LOADERS = ('LoadAnnotations', 'LoadImageFromFile')
"""Transforms of MMCV from which those derive that may load files."""
WORDS: dict[str, tuple[str, ...]] = {
    'adapt_cfg': ('dilation', 'offset'),
    'dqs_cfg': ('nms',),
    'nms': ('nms', 'nms_match', 'soft_nms'),
    'roi_layer': ('RoIAlign', 'RoIPool'),
}
"""Values of ``type`` that are in no registry, by the key of the dict; elsewhere a registry would import them."""
LEFT_OUT = (
    'backend_args', 'batch_augments', 'checkpoint', 'checkpoint_path', 'download', 'file_client_args', 'init_cfg',
    'load_from', 'outfile_prefix', 'output_dir', 'pretrained', 'teacher_checkpoint', 'train_cfg',
)  # fmt: skip
"""Keys of initial weights, files to write, downloads and stores other than the disk, and those of training only."""
TEXTS = {'classes', 'metainfo', 'palette', 'templates'}
"""Keys whose lists hold any text."""
NAMED = ['mode', 'model_name']
"""Keys of words that are published without a constructor that lists them."""
NAMES = 'paramwise_cfg'
"""The key of a dict whose keys and texts may be beginnings of the names of parameters."""
SIDES = ('crop_size', 'img_size', 'scale', 'size')
"""Keys of numbers of pixels."""
MAX_DEPTH, MAX_VALUES, MAX_TEXT = 40, 200_000, 1000
MAX_SIDE, MAX_INTEGER, MAX_NUMBER = 2**14, 2**20, 1e9
FREE_PARTS, FREE_VALUES = 50_000, 2**28
"""Layers and tensors, and values in them, that a model may have beyond its file, such as a teacher."""

_TYPE = re.compile(r'((\w+\.)?[A-Za-z_]|torchvision/)[\w-]*')
_WORD = re.compile(r'[A-Za-z_][\w+-]*')
_NAMES = re.compile(r'[\w.-]+')
_NAME_OF_TIMM = re.compile(r'\w+(\.\w+)?')  # without the colon of 'hf-hub:' and 'local-dir:'
_SPELT = {'arch': re.compile(r'\w[\w/+-]*'), 'model_name': _NAME_OF_TIMM, 'timm_model': _NAME_OF_TIMM}
"""Words of another spelling, by their key."""
_PATH = re.compile(r'[^:\x00-\x1f\x7f-\x9f]*')
"""A path on this machine."""


def admit(
    values: Mapping[str, Any],
    where: object,
    registries: Collection[str] = ('MODELS',),
    scope: str = 'mmengine',
    known: Collection[str] = (),
    datasets: Collection[str] | None = None,
) -> dict[str, Any]:
    """Return the values of a config or of a description as they may be built: None at the keys of ``LEFT_OUT``.

    After ``trust_checkpoints`` everything is returned as it is.

    Args:
        values: Of a file, or of the folder of a run.
        where: What messages begin with.
        registries: Names of MMEngine's registries that hold the types, beside those of this package.
        scope: Of the types without a scope.
        known: More types.
        datasets: Names of classes from which datasets may derive, where texts may be paths of data, as
            those of datasets and metrics; None elsewhere.

    Raises:
        CheckpointError: For a type that no registry holds, a value that is more than a number or a
            word, and numbers that no model has; the message names the key.
    """
    if reading.is_trusted():
        return dict(values)
    try:
        gate = _Gate(registries, known, scope, datasets=datasets or ())
        return gate.mapping(values, (), scope, datasets is not None)
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
    return _Gate(registries, (), scope, strict=True).mapping(values, (), scope, False)


def _refused(place: tuple[str, ...], reason: str) -> ValueError:
    """Return the error of a value that is not admitted."""
    return ValueError(f'{".".join(place)[-100:] or "it"} {reason}')


class _Gate:
    """Checks the values of one config; ``place`` are the keys above a value."""

    def __init__(
        self,
        registries: Collection[str],
        known: Collection[str],
        default_scope: str,
        strict: bool = False,
        datasets: Collection[str] = (),
    ) -> None:
        self.registries, self.known, self.strict = registries, known, strict
        self.default_scope, self.datasets = default_scope, datasets
        self.count = 0

    def find(self, name: str, scope: str) -> Any:
        """Return what is built by a name in a scope; None if nothing."""
        kind = None
        if scope == REPLACING and '.' not in name:
            kind = find_type(name, self.registries, self.default_scope)
        return kind or find_type(name, self.registries, scope)

    def mapping(self, node: Mapping, place: tuple[str, ...], scope: str, paths: bool) -> dict[str, Any]:
        """Return a dict; ``scope`` is the one of types without one."""
        scope_here = node.get('_scope_', scope)
        if scope_here not in SCOPES:
            raise _refused((*place, '_scope_'), f'is {_brief(scope_here)}, which has no models here')
        out = {}
        for key, value in node.items():
            is_word = isinstance(key, str) and (_WORD.fullmatch(key) or NAMES in place)
            if not is_word:
                raise _refused(place, f'has the key {_brief(key)}, which no model has')
            inside = paths and not key.endswith('pipeline')
            left_out = key in LEFT_OUT
            if self.strict and _has_text(value) and key not in ('type', '_scope_', *TEXTS):
                self.check_name(key, node, (*place, key), scope_here)
            out[key] = None if left_out else self.value(value, (*place, key), scope_here, inside)
        if 'type' in node:
            out |= _downloads(self.find(node['type'], scope_here))
        return out

    def check_name(self, key: str, node: Mapping, place: tuple[str, ...], scope: str) -> None:
        """Check that the constructor of a dict's type takes a key whose value is a text."""
        name = str(node.get('type'))
        kinds = KINDS.get(_above(place))
        kind = kinds(name) if kinds else self.find(name, scope)
        if key not in {*NAMED, *_arguments(kind)}:
            raise _refused(place, 'is a text that no constructor takes')

    def value(self, value: Any, place: tuple[str, ...], scope: str, paths: bool) -> Any:
        """Return a value of any kind."""
        self.count += 1
        if self.count > MAX_VALUES or len(place) > MAX_DEPTH:
            raise _refused(place[:5], 'has more values, or deeper ones, than any model')
        if place[-1] in ('type', 'constructor'):
            self.check_type(value, place, scope)
        elif isinstance(value, Mapping):
            return self.mapping(value, place, scope, paths)
        elif isinstance(value, list | tuple):
            return type(value)(self.value(item, (*place, ''), scope, paths) for item in value)
        elif isinstance(value, str):
            _check_text(value, place, paths)
        elif isinstance(value, int | float):  # True and False among them
            _check_number(value, place)
        elif value is not None:
            raise _refused(place, f'is a {type(value).__name__}, no plain value')
        return value

    def check_type(self, name: Any, place: tuple[str, ...], scope: str) -> None:
        """Check that a registry holds a type."""
        if not isinstance(name, str) or not _TYPE.fullmatch(name):
            raise _refused(place, f'is {_brief(name)}, no name of a type')
        above = _above(place)
        kinds = KINDS.get(above)
        if name in self.known or name in WORDS.get(above, ()) or (kinds and kinds(name)):
            return
        kind = self.find(name, scope)
        if kind is None:
            raise _refused(place, f'is {_brief(name)}, which no registry holds (is its module imported?)')
        if not may_build(kind, self.datasets):
            raise _refused(place, f'is {_brief(name)}, of no kind that is built of the config of others')


def may_build(kind: Any, datasets: Collection[str] = ()) -> bool:
    """Check whether what a registry holds is of a kind that may be built of values that nobody has read."""
    module = getattr(kind, 'func', kind).__module__  # torchvision's transforms are registered as partial functions
    package, _, place = module.partition('.')
    bases = {base.__name__ for base in kind.__mro__} if isinstance(kind, type) else set()
    if package not in (*TOOLBOXES, 'mmlape'):
        return True
    if package in TOOLBOXES and not f'{place}.'.startswith(PLACES) and bases.isdisjoint(datasets):
        return False
    is_loader = getattr(kind, '__name__', '').startswith('Load') and '.transforms.' in module
    return not (is_loader and bases.isdisjoint(LOADERS)) and _imported_by(module) <= LIBRARIES


@functools.cache
def _imported_by(module: str) -> set[str]:
    """Return the packages that a module imports anywhere, other than Python's own."""
    names = set()
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')  # of its syntax
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names.add(str(node.module))
    return {name.partition('.')[0] for name in names} - sys.stdlib_module_names


def _above(place: tuple[str, ...]) -> str:
    """Return the key of the dict, or of the list of dicts, that a value is in."""
    return next((key for key in reversed(place[:-1]) if key), '')


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
    with closed():
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


def _check_text(value: str, place: tuple[str, ...], paths: bool) -> None:
    if len(value) > MAX_TEXT:
        raise _refused(place, f'is a text of {len(value):,} characters')
    if place[-1] == '' and not TEXTS.isdisjoint(place):
        return
    pattern = _SPELT.get(place[-1], _WORD)
    if (paths and TEXTS.isdisjoint(place)) or place[-1] == 'vocab_file':
        pattern = _PATH
    if NAMES in place:
        pattern = _NAMES
    if value and not pattern.fullmatch(value):
        raise _refused(place, f'is {_brief(value)}, which could name a file or an address')


def _check_number(value: float, place: tuple[str, ...]) -> None:
    last = next((key for key in reversed(place) if key), '')
    most = MAX_SIDE if last in SIDES else MAX_INTEGER if isinstance(value, int) else MAX_NUMBER
    if not -most <= value <= most:  # NaN, too
        raise _refused(place, f'is {_brief(value)}, and {most:,.0f} the most that is built')


def _brief(value: object) -> str:
    text = f'a {type(value).__name__}' if isinstance(value, Mapping | list | tuple) else repr(value)
    return text if len(text) <= 80 else f'{text[:77]}...'


@contextlib.contextmanager
def closed() -> Iterator[None]:
    """Have MMEngine unpickle nothing, and import nothing by its name, while values that nobody has read are built.

    Its `load` takes what stands behind the last dot of any text for the format of a file, and its
    registries import what they do not hold. After ``trust_checkpoints`` they may.
    """
    if reading.is_trusted() or not find_spec('mmengine'):
        yield
        return
    from mmengine.fileio.handlers import file_handlers
    from mmengine.registry import registry

    handlers, find = dict(file_handlers), registry.get_object_from_string
    for name in ('pickle', 'pkl'):
        file_handlers.pop(name, None)
    registry.get_object_from_string = lambda name: None
    try:
        yield
    finally:
        file_handlers.update(handlers)
        registry.get_object_from_string = find


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
        if min(parts, values) < 0 and not reading.is_trusted():
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
    except MMLaPEError:
        raise
    except Exception as error:
        if failed_import(error):
            raise
        raise CheckpointError(f'{where}: its config builds no model that works ({shown(error)})') from error
