"""The frozen part of a model: what gets the images, trains nothing, and computes the same each time.

The model says what it is. A module without trained parameters is frozen as a whole, and its outputs are what the rest
takes. A module that trains other parts, too, may have a method ``read_layers(images)``, which its ``forward`` calls
once: what frozen parts alone compute of images, as tensors with a row for each.

    read_layers(images) -> features;  forward(images) = rest(features, images)

A trial forward shows which of them gets the images, and whether the loss is the same from stored features; where the
rest takes the images, they are stored, too.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from mmengine.utils import is_seq_of
from torch import Tensor, nn
from torch.utils._pytree import TreeSpec, tree_flatten, tree_leaves, tree_unflatten

from mmlape.errors import ConfigError

FEATURES = 'frozen_features'
"""The key of a sample that has the features of its view, a tuple of tensors without the dimension of the batch."""
READ_LAYERS = 'read_layers'

Collate = Callable[[Sequence[dict[str, Any]]], dict[str, Any]]
Candidates = Mapping[str, tuple[nn.Module, str]]


class _Reached(Exception):
    """Ends a trial forward at the frozen part; ``args`` are what it had there."""


@dataclass
class View:
    """What a model makes of an image before anything that is trained."""

    features: tuple[Tensor, ...]  # without the dimension of the batch; the image last where the rest takes it
    size: tuple[int, ...]  # of the image behind the preprocessor, (C, H, W)
    rest: dict[str, Any]  # what the preprocessor returns beside the image

    def sample(self) -> dict[str, Any]:
        """Return a sample for the data loader, with zeros for the image."""
        return {**self.rest, 'inputs': torch.zeros(()).expand(self.size), FEATURES: self.features}


def is_frozen(module: nn.Module) -> bool:
    """Return whether a module has parameters, trains none, and its parts stay in evaluation mode."""
    parameters = list(module.parameters())
    lists = nn.ModuleList, nn.ModuleDict  # compute nothing
    inner = [part for part in module.modules() if part is not module and not isinstance(part, lists)]
    return bool(parameters) and not (
        any(parameter.requires_grad for parameter in parameters)
        or any(part.training for part in inner)
        or (module.training and not inner)
    )


def _candidates(module: nn.Module, name: str = '') -> Iterator[tuple[str, tuple[nn.Module, str]]]:
    """Yield names of the largest frozen parts and of what reads layers, each with its module and method."""
    if is_frozen(module):
        yield name, (module, 'forward')
        return
    if hasattr(module, READ_LAYERS):
        yield name, (module, READ_LAYERS)
    for child_name, child in module.named_children():
        yield from _candidates(child, f'{name}.{child_name}' if name else child_name)


def outermost_frozen(module: nn.Module) -> list[str]:
    """Return the names of the largest frozen parts of a module in training mode."""
    return [name for name, (_, method) in _candidates(module) if method == 'forward']


def config_of(model: dict, name: str) -> dict:
    """Return the config of a part of a model, or of the smallest part around it that has one."""
    for key in name.split('.'):
        if not isinstance(model.get(key), dict):
            break
        model = model[key]
    return model


@contextmanager
def replaced(module: nn.Module, method: str, function: Callable) -> Iterator[None]:
    """Have a function in the place of a module's method."""
    setattr(module, method, function)
    try:
        yield
    finally:
        delattr(module, method)


class FrozenPart:
    """The frozen part of a model, which gives stored features instead of computing them while `replaying`.

    Args:
        model: A model of OpenMMLab, in training mode.
        data: A batch of its data loader.

    Attributes:
        name: Dotted, in the model.
        module: What has the part.
        with_image: Whether the rest of the model takes the image, too.

    Raises:
        ConfigError: The model has no such part; the message says what is trained.
    """

    def __init__(self, model: nn.Module, data: dict[str, Any]) -> None:
        self.model, self.with_image = model, False
        self._blank = torch.zeros(())
        self._spec: TreeSpec | None = None
        self._dtypes: dict[bool, list[torch.dtype]] = {}  # in training, and in validation
        self._features: list[Tensor] | None = None  # of a batch; empty once they are read
        candidates = dict(_candidates(model))
        found = self._reached(candidates, data)
        if found is None or _frozen_beside(model, found, candidates[found][0]):
            raise ConfigError(f'cache_features: {_reason(model, candidates)}')
        self.name, (self.module, self._method) = found or 'model', candidates[found]

    def _reached(self, candidates: Candidates, data: dict[str, Any]) -> str | None:
        """Return the name of the candidate that gets the images of a batch."""
        batch = self.model.data_preprocessor(dict(data), True)
        shape = batch['inputs'].shape

        def reporting(name: str, method: Callable) -> Callable:
            def call(*args, **kwargs):
                if len(args) == 1 and isinstance(args[0], Tensor) and args[0].shape[:2] == shape[:2]:
                    raise _Reached(name)
                return method(*args, **kwargs)

            return call

        with ExitStack() as stack, torch.no_grad():
            for name, (module, method) in candidates.items():
                stack.enter_context(replaced(module, method, reporting(name, getattr(module, method))))
            try:
                self.model(**batch, mode='loss')
            except _Reached as reached:
                return reached.args[0]
        return None

    def tensors(self) -> dict[str, Tensor]:
        """Return what decides the features: frozen parameters, and buffers of what stays in evaluation mode."""
        frozen = {name: value for name, value in self.module.named_parameters() if not value.requires_grad}
        for name, part in self.module.named_modules():
            if part is self.module or not part.training:
                frozen |= {f'{name}.{key}': value for key, value in part.named_buffers(recurse=False)}
        return frozen

    def views(self, samples: Sequence[dict[str, Any]], collate: Collate, training: bool) -> list[View]:
        """Return what the model makes of images.

        They go through the preprocessor one by one, and together up to the part; nothing behind it runs.

        Args:
            samples: The images.
            collate: Makes a batch of samples.
            training: Whether they are of training.

        Raises:
            ConfigError: The preprocessor makes other images of a batch, or the part trains something, or does not give
                a row for each.
        """
        single = [self.model.data_preprocessor(collate([sample]), training) for sample in samples]
        together = self.model.data_preprocessor(collate(samples), training)
        inputs = [one['inputs'][0] for one in single]
        if any(one.shape != together['inputs'].shape[1:] for one in inputs):
            sizes = {' x '.join(map(str, one.shape[-2:])) for one in inputs}
            raise ConfigError(
                f'cache_features: images of a batch differ in size ({", ".join(sorted(sizes))}), so that features '
                'depend on the batch: let the pipeline or the preprocessor give them one size'
            )
        if not all(torch.equal(one, other) for one, other in zip(inputs, together['inputs'])):
            raise ConfigError(
                f'cache_features: {type(self.model.data_preprocessor).__name__} mixes the images of a batch'
            )
        rows = self._rows(together, training)
        kept = [{key: _first(value) for key, value in one.items() if key != 'inputs'} for one in single]
        return [View(row, tuple(one.shape), rest) for row, one, rest in zip(rows, inputs, kept)]

    def _rows(self, batch: dict[str, Any], training: bool) -> list[tuple[Tensor, ...]]:
        compute, ran = getattr(self.module, self._method), []

        def stop(images: Tensor) -> None:
            ran.clear()
            raise _Reached(compute(images), len(images))

        with ExitStack() as stack:
            for name, part in self.module.named_modules():
                if part.training and not list(part.children()):
                    handle = part.register_forward_pre_hook(lambda *_, name=name: ran.append(name))
                    stack.callback(handle.remove)
            stack.enter_context(replaced(self.module, self._method, stop))
            try:
                self.model(**batch, mode='loss' if training else 'predict')
            except _Reached as reached:
                outputs, count = reached.args
        leaves, self._spec = tree_flatten(outputs)
        if not all(isinstance(leaf, Tensor) and leaf.dim() and len(leaf) == count for leaf in leaves):
            raise ConfigError(f'cache_features: {self.name} does not return a row of features for each image')
        if ran or any(leaf.requires_grad for leaf in leaves):
            what = f', such as {ran[0]},' if ran else ''
            raise ConfigError(f'cache_features: layers of model.{self.name}{what} are trained; freeze them all')
        leaves += [batch['inputs']] if self.with_image else []
        self._dtypes[training] = [leaf.dtype for leaf in leaves]
        return list(zip(*(leaf.cpu() for leaf in leaves)))

    @contextmanager
    def replaying(self) -> Iterator[None]:
        """Give the stored features of each batch that has them; preprocessor and part run for a batch without.

        Raises:
            ConfigError: The part runs more than once for a batch that has them.
        """
        preprocessor = self.model.data_preprocessor
        processed, computed = preprocessor.forward, getattr(self.module, self._method)

        def preprocess(data: dict[str, Any], training: bool = False) -> dict[str, Any]:
            self._features = None
            if FEATURES not in data:
                return processed(data, training)
            rest = preprocessor.cast_data({key: value for key, value in data.items() if key != 'inputs'})
            stacked = (leaf if isinstance(leaf, Tensor) else torch.stack(list(leaf)) for leaf in rest.pop(FEATURES))
            self._features = [leaf.to(dtype) for leaf, dtype in zip(stacked, self._dtypes[training])]
            if self.with_image:
                return dict(rest, inputs=self._features.pop())
            blank = self._blank.to(self._features[0].device)
            return dict(rest, inputs=blank.expand(len(data['inputs']), *data['inputs'][0].shape))

        def replay(*args, **kwargs):
            if self._features is None:
                return computed(*args, **kwargs)
            if not self._features:
                raise ConfigError(f'cache_features: {self.name} runs more than once for an image')
            features, self._features = self._features, []
            return tree_unflatten(features, self._spec)

        with replaced(preprocessor, 'forward', preprocess), replaced(self.module, self._method, replay):
            try:
                yield
            finally:
                self._features = None

    def check(self, samples: Sequence[dict[str, Any]], collate: Collate) -> View:
        """Check that what is behind the part computes the same from features; find out whether it takes the images.

        Args:
            samples: Images.
            collate: Makes a batch of samples.

        Returns:
            The view of the first one.

        Raises:
            ConfigError: The losses differ.
        """
        try:
            for self.with_image in (False, True):
                self.model.train()
                views = self.views(samples, collate, training=True)
                self.model.eval()
                seen = self._losses(collate(samples))
                self._blank = torch.zeros((), requires_grad=True)
                with self.replaying():
                    unseen = self._losses(collate([view.sample() for view in views]))
                apart = [
                    key
                    for key in seen
                    if not torch.allclose(seen[key], unseen[key], rtol=1e-3, atol=1e-5, equal_nan=True)
                ]
                if not apart and not _reaches(unseen, self._blank):
                    return views[0]
        finally:
            self._blank = torch.zeros(())
            self.model.train()
        raise ConfigError(
            f'cache_features: the loss is another one from the features of {self.name}: {apart[0]} is '
            f'{float(seen[apart[0]].sum()):g}, and {float(unseen[apart[0]].sum()):g} from them'
        )

    @torch.no_grad()
    def runs_once(self, stored: dict[str, Any]) -> bool:
        """Return whether validating a batch that has its features takes them once, and nothing of the image."""
        self.model.eval()
        results = []
        try:
            with self.replaying():
                for value in (0.0, math.nan):
                    self._blank = torch.full((), value)
                    results.append([sample.to_dict() for sample in self.model.val_step(dict(stored))])
        except ConfigError:
            return False
        finally:
            self._blank = torch.zeros(())
            self.model.train()
        return all(map(_equal, *map(tree_leaves, results)))

    def _losses(self, data: dict[str, Any]) -> dict[str, Tensor]:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            losses = self.model(**self.model.data_preprocessor(dict(data), True), mode='loss')
        flat = {key: value if is_seq_of(value, Tensor) else [value] for key, value in losses.items()}
        return {key: torch.stack([one.float().sum() for one in values]) for key, values in flat.items()}


def _equal(one: Any, other: Any) -> bool:
    return not isinstance(one, Tensor) or torch.equal(one, other)


def _reaches(losses: Mapping[str, Tensor], image: Tensor) -> bool:
    """Return whether losses depend on an image, also where the weight of what reads it is 0."""
    trained = [loss.sum() for loss in losses.values() if loss.requires_grad]
    return bool(trained) and torch.autograd.grad(sum(trained), image, allow_unused=True)[0] is not None


def _first(value: Any) -> Any:
    """Return what a batch of one has for its sample."""
    first = value[0]
    return first.cpu() if hasattr(first, 'cpu') else first


def _frozen_beside(model: nn.Module, name: str, part: nn.Module) -> bool:
    """Return whether something frozen lies beside the part, in the same part of the model."""
    inside = {id(parameter) for parameter in part.parameters()}
    around = model.get_submodule(name.partition('.')[0])
    return any(not parameter.requires_grad and id(parameter) not in inside for parameter in around.parameters())


def _reason(model: nn.Module, candidates: Candidates) -> str:
    """Say why no part of a model runs once."""
    backbone = getattr(model, 'backbone', model)
    trained = [name for name, parameter in backbone.named_parameters() if parameter.requires_grad]
    where = 'model.backbone' if backbone is not model else 'the model'
    if trained and len(trained) < len(list(backbone.parameters())):
        more = f' and {len(trained) - 3} more' if len(trained) > 3 else ''
        return f'{where} is frozen but for {", ".join(trained[:3])}{more}; a part that runs once trains nothing'
    if trained:
        return f'{where} is trained; freeze it, such as by frozen=True of mmlape.TimmViT'
    active = [name for name, part in backbone.named_modules() if part.training and not list(part.children())]
    if active:
        return f'{where} has parts in training mode, whose outputs change: {", ".join(active[:3])}'
    return f'{", ".join(candidates)} is frozen, but gets no images as its one argument'
