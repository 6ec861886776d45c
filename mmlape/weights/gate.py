"""The gate for what no user has written: configs in checkpoints and in folders of runs, and descriptions of models.

Nothing is built from such values before `admit` has returned them: a type is a name that a registry
holds, all else are numbers and words. So none of them is imported, called, evaluated or opened.
"""

import contextlib
import inspect
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from importlib import import_module
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
OUTSIDE = [
    'mmdet.datasets.crowdhuman',
    'mmdet.datasets.openimages',
    'mmdet.datasets.transforms.text_transformers',
    'mmdet.evaluation.metrics.base_video_metric',
    'mmdet.evaluation.metrics.coco_caption_metric',
    'mmdet.evaluation.metrics.coco_occluded_metric',
    'mmdet.evaluation.metrics.dump_',
    'mmdet.evaluation.metrics.mot_challenge_metric',
    'mmdet.evaluation.metrics.reid_metric',
    'mmdet.evaluation.metrics.youtube_vis_metric',
    'mmdet.models.dense_heads.atss_vlfusion_head',
    'mmdet.models.detectors.d2_wrapper',
    'mmdet.models.detectors.glip',
    'mmdet.models.detectors.grounding_dino',
    'mmdet.models.detectors.kd_one_stage',
    'mmdet.models.detectors.lad',
    'mmdet.models.language_models',
    'mmdet.models.task_modules.tracking',
    'mmengine.evaluator.metric.DumpResults',
    'mmpretrain.evaluation.metrics.caption',
    'mmpretrain.evaluation.metrics.nocaps',
    'mmpretrain.evaluation.metrics.shape_bias_label',
    'mmpretrain.evaluation.metrics.vqa',
    'mmpretrain.models.classifiers.hugging_face',
    'mmpretrain.models.heads.vqa_head',
    'mmpretrain.models.multimodal',
    'mmpretrain.models.retrievers',
    'mmpretrain.models.selfsup',
    'mmpretrain.models.utils.huggingface',
    'mmpretrain.models.utils.tokenizer',
    'mmpretrain.models.utils.vector_quantizer',
    'mmseg.datasets.onedl',
    'mmseg.datasets.transforms.loading.LoadBiomedical',
    'mmseg.datasets.transforms.loading.LoadDepthAnnotation',
    'mmseg.datasets.transforms.loading_onedl',
    'mmseg.models.backbones.vpd',
    'mmseg.models.text_encoder',
]
"""Beginnings of the full names of classes that open, unpickle, write or download what a word or a default names."""
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
SPECIAL = ('_base_', '_delete_', 'custom_imports')
"""Keys to which MMEngine gives a meaning."""
TEXTS = {'classes', 'metainfo', 'palette', 'templates'}
"""Keys whose lists hold any text."""
NAMED = ['mode', 'model_name']
"""Keys of words that are published without a constructor that lists them."""
NAMES = 'custom_keys'
"""The key of a dict whose keys are beginnings of the names of parameters."""
SIDES = ('crop_size', 'img_size', 'scale', 'size')
"""Keys of numbers of pixels."""
MAX_DEPTH, MAX_VALUES, MAX_TEXT = 40, 200_000, 1000
MAX_SIDE, MAX_INTEGER, MAX_NUMBER = 2**14, 2**18, 1e9
FREE_PARTS, FREE_VALUES = 50_000, 2**28
"""Layers and tensors, and values in them, that a model may have beyond its file, such as a teacher."""

_TYPE = re.compile(r'((\w+\.)?[A-Za-z_]|torchvision/)[\w-]*')
_WORD = re.compile(r'[A-Za-z_][\w+-]*')
_NAME_OF_TIMM = re.compile(r'\w+(\.\w+)?')  # without the colon of 'hf-hub:' and 'local-dir:'
_SPELT = {'arch': re.compile(r'\w[\w/+-]*'), 'model_name': _NAME_OF_TIMM, 'timm_model': _NAME_OF_TIMM}
"""Words of another spelling, by their key."""
_PATH = re.compile(r'(?i)(?!.*\.(np[yz]?|pickle|pkl|pt|pth|py|ya?ml)$)[^:\x00-\x1f\x7f-\x9f]*')
"""A path on this machine, of a file that no reader unpickles or runs."""


def admit(
    values: Mapping[str, Any],
    where: object,
    registries: Collection[str] = ('MODELS',),
    scope: str = 'mmengine',
    known: Collection[str] = (),
    paths: bool = False,
) -> dict[str, Any]:
    """Return the values of a config or of a description as they may be built: None at the keys of ``LEFT_OUT``.

    After ``trust_checkpoints`` everything is returned as it is.

    Args:
        values: Of a file, or of the folder of a run.
        where: What messages begin with.
        registries: Names of MMEngine's registries that hold the types, beside those of this package.
        scope: Of the types without a scope.
        known: More types.
        paths: Whether texts may be paths of data, as those of datasets and metrics.

    Raises:
        CheckpointError: For a type that no registry holds, a value that is more than a number or a
            word, and numbers that no model has; the message names the key.
    """
    if reading.is_trusted():
        return dict(values)
    try:
        return _Gate(registries, known, scope).mapping(values, (), scope, paths)
    except _RefusedError as refused:
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
    try:
        return _Gate(registries, (), scope, strict=True).mapping(values, (), scope, False)
    except _RefusedError as refused:
        raise ValueError(str(refused)) from None


class _RefusedError(Exception):
    """A value is not admitted."""

    def __init__(self, place: tuple[str, ...], reason: str):
        super().__init__(f'{".".join(place)[-100:] or "it"} {reason}')


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
        found = None
        if scope == REPLACING and '.' not in name:
            found = find_type(name, self.registries, self.default_scope)
        return found or find_type(name, self.registries, scope)

    def mapping(self, node: Mapping, place: tuple[str, ...], scope: str, paths: bool) -> dict[str, Any]:
        """Return a dict; ``scope`` is the one of types without one."""
        scope_here = node.get('_scope_', scope)
        if scope_here not in SCOPES:
            raise _RefusedError((*place, '_scope_'), f'is {_brief(scope_here)}, which has no models here')
        out = {}
        for key, value in node.items():
            is_word = isinstance(key, str) and (_WORD.fullmatch(key) or place[-1:] == (NAMES,))
            if not is_word or key in SPECIAL:
                raise _RefusedError(place, f'has the key {_brief(key)}, which no model has')
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
        found = kinds(name) if kinds else self.find(name, scope)
        if key not in {*NAMED, *_arguments(found)}:
            raise _RefusedError(place, 'is a text that no constructor takes')

    def value(self, value: Any, place: tuple[str, ...], scope: str, paths: bool) -> Any:
        """Return a value of any kind."""
        self.count += 1
        if self.count > MAX_VALUES or len(place) > MAX_DEPTH:
            raise _RefusedError(place[:5], 'has more values, or deeper ones, than any model')
        if place[-1] == 'type':
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
            raise _RefusedError(place, f'is a {type(value).__name__}, no plain value')
        return value

    def check_type(self, name: Any, place: tuple[str, ...], scope: str) -> None:
        """Check that a registry holds a type."""
        if not isinstance(name, str) or not _TYPE.fullmatch(name):
            raise _RefusedError(place, f'is {_brief(name)}, no name of a type')
        above = _above(place)
        kinds = KINDS.get(above)
        if name in self.known or name in WORDS.get(above, ()) or (kinds and kinds(name)):
            return
        found = self.find(name, scope)
        if found is None:
            raise _RefusedError(place, f'is {_brief(name)}, which no registry holds (is its module imported?)')
        if f'{found.__module__}.{getattr(found, "__name__", "")}'.startswith(tuple(OUTSIDE)):
            raise _RefusedError(place, f'is {_brief(name)}, which opens what its values name')


def _above(place: tuple[str, ...]) -> str:
    """Return the key of the dict, or of the list of dicts, that a value is in."""
    return next((key for key in reversed(place[:-1]) if key), '')


def find_type(name: str, registries: Collection[str], default_scope: str) -> Any:
    """Return what MMEngine builds by a name; None if no registry that it asks holds it.

    MMEngine would import whatever a name with dots, or of no entry, says. It asks the registries
    of the name's scope, or of the default one, and those above them.
    """
    scope, _, plain = name.rpartition('.')
    scope_of_name = scope or default_scope
    if scope_of_name in MODELS and (found := MODELS[scope_of_name](plain)):
        return found
    if scope and scope not in SCOPES:
        return None
    try:
        from mmengine import registry as root
    except ImportError:
        return None
    with contextlib.suppress(ImportError):
        import_module(f'{scope_of_name}.registry')
    for key in registries:
        parent = getattr(root, key)
        registry = parent if scope_of_name == 'mmengine' else parent.children.get(scope_of_name)
        while registry is not None:
            if found := _entry(registry, plain):
                return found
            registry = registry.parent
    return None


def _entry(registry: Any, name: str) -> Any:
    registry.import_from_location()
    for location in registry._locations:  # of ours, which import a name on its first use
        module = import_module(location)
        if location.startswith('mmlape.') and name in getattr(module, '__all__', ()):
            getattr(module, name)
    return registry.module_dict.get(name)


def _has_text(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return any(map(_has_text, value))
    return isinstance(value, str)


def _arguments(found: Any) -> set[str]:
    """Return the names that the constructors of a class and of those above it take."""
    owners = found.__mro__ if isinstance(found, type) else ()
    constructors = [vars(owner)['__init__'] for owner in owners[:-1] if '__init__' in vars(owner)]
    return {name for init in constructors for name in inspect.signature(init).parameters}


def _downloads(found: Any) -> dict[str, None]:
    """Return what switches off the downloads that a class makes by default."""
    if not isinstance(found, type):
        return {}
    parameters = inspect.signature(found.__init__).parameters.values()  # a metaclass hides them
    return {one.name: None for one in parameters if one.name in LEFT_OUT and one.default is True}


def _check_text(value: str, place: tuple[str, ...], paths: bool) -> None:
    if len(value) > MAX_TEXT:
        raise _RefusedError(place, f'is a text of {len(value):,} characters')
    if place[-1] == '' and not TEXTS.isdisjoint(place):
        return
    pattern = _SPELT.get(place[-1], _WORD)
    if (paths and TEXTS.isdisjoint(place)) or place[-1] == 'vocab_file':
        pattern = _PATH
    if value and not pattern.fullmatch(value):
        raise _RefusedError(place, f'is {_brief(value)}, which could name a file or an address')


def _check_number(value: float, place: tuple[str, ...]) -> None:
    named = next((key for key in reversed(place) if key), '')
    most = MAX_SIDE if named in SIDES else MAX_INTEGER if isinstance(value, int) else MAX_NUMBER
    if not -most <= value <= most:  # NaN, too
        raise _RefusedError(place, f'is {_brief(value)}, and {most:,.0f} the most that is built')


def _brief(value: object) -> str:
    text = f'a {type(value).__name__}' if isinstance(value, Mapping | list | tuple) else repr(value)
    return text if len(text) <= 80 else f'{text[:77]}...'


@contextlib.contextmanager
def limited(where: object, tensors: Mapping[str, Any]) -> Iterator[None]:
    """Refuse, before its memory is taken, a model that is far larger than its file.

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
