"""The frozen part of a model: the module that gets the images, is never trained, and computes the same each time.

It is asked of the model, not of names: a trial forward shows which frozen module gets the batch of images, and whether
the loss is the same when the rest of the model gets its stored outputs and no image.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from mmengine.utils import is_seq_of
from torch import Tensor, nn
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from mmlape.errors import ConfigError

FEATURES = 'frozen_features'
"""The key of a sample that has the features of its view, a tuple of tensors without the dimension of the batch."""


class _Reached(Exception):
    """Ends a trial forward at the frozen part; ``args`` are what it had there."""


@dataclass
class View:
    """What a model makes of an image before anything that is trained."""

    features: tuple[Tensor, ...]  # without the dimension of the batch
    size: tuple[int, ...]  # of the image behind the preprocessor, (C, H, W)
    rest: dict[str, Any]  # what the preprocessor returns beside the image

    def sample(self) -> dict[str, Any]:
        """Return a sample for the data loader, with zeros for the image."""
        return {**self.rest, 'inputs': torch.zeros(()).expand(self.size), FEATURES: self.features}


def is_frozen(module: nn.Module) -> bool:
    """Return whether a module has parameters, trains none, and its parts stay in evaluation mode."""
    parameters = list(module.parameters())
    inner = [part for part in module.modules() if part is not module]
    return bool(parameters) and not (
        any(parameter.requires_grad for parameter in parameters)
        or any(part.training for part in inner)
        or (module.training and not inner)
    )


def outermost_frozen(module: nn.Module, name: str = '') -> Iterator[tuple[str, nn.Module]]:
    """Yield names and modules of the largest frozen parts."""
    if is_frozen(module):
        yield name, module
        return
    for child_name, child in module.named_children():
        yield from outermost_frozen(child, f'{name}.{child_name}' if name else child_name)


class FrozenPart:
    """The frozen part of a model, which gives stored features instead of computing them while `replaying`.

    Args:
        model: A model of OpenMMLab, in training mode.
        data: A batch of its data loader.

    Attributes:
        name: Dotted, in the model.
        module: The part.

    Raises:
        ConfigError: The model has no such part; the message says what is trained, or what it needs beside it.
    """

    def __init__(self, model: nn.Module, data: dict[str, Any]) -> None:
        self.model, self.calls = model, 0
        self._spec: TreeSpec | None = None
        self._dtypes: list[torch.dtype] = []
        self._features: list[Tensor] | None = None
        candidates = dict(outermost_frozen(model))
        found = self._reached(candidates, data)
        if found is None or _frozen_outside(model, candidates[found]):
            raise ConfigError(f'cache_features: {_reason(model, candidates)}')
        self.name, self.module = found, candidates[found]

    def _reached(self, candidates: Mapping[str, nn.Module], data: dict[str, Any]) -> str | None:
        """Return the name of the frozen module that gets the images of a batch."""
        batch = self.model.data_preprocessor(dict(data), True)
        shape = batch['inputs'].shape

        def gets_images(name: str) -> Callable:
            def hook(module: nn.Module, args: tuple) -> None:
                if len(args) == 1 and isinstance(args[0], Tensor) and args[0].shape == shape:
                    raise _Reached(name)

            return hook

        handles = [module.register_forward_pre_hook(gets_images(name)) for name, module in candidates.items()]
        try:
            with torch.no_grad():
                self.model(**batch, mode='loss')
        except _Reached as reached:
            return reached.args[0]
        finally:
            for handle in handles:
                handle.remove()
        return None

    @torch.no_grad()
    def views(self, data: Mapping[str, Any], batches: list[dict[str, Any]], training: bool) -> list[View]:
        """Return what the model makes of images.

        They go through the preprocessor one by one, and together up to the part; nothing behind it runs.

        Args:
            data: A batch of the images.
            batches: Each image as a batch.
            training: Whether they are of training.

        Raises:
            ConfigError: The preprocessor makes other images of a batch, or the part does not give a row for each.
        """
        single = [self.model.data_preprocessor(dict(one), training) for one in batches]
        together = self.model.data_preprocessor(dict(data), training)
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
        rows = self._rows(together)
        kept = [{key: _first(value) for key, value in one.items() if key != 'inputs'} for one in single]
        return [View(row, tuple(one.shape), rest) for row, one, rest in zip(rows, inputs, kept)]

    def _rows(self, batch: dict[str, Any]) -> list[tuple[Tensor, ...]]:
        def stop(module: nn.Module, args: tuple, outputs: Any) -> None:
            raise _Reached(outputs, len(args[0]))

        handle = self.module.register_forward_hook(stop)
        try:
            self.model(**batch, mode='tensor')
        except _Reached as reached:
            outputs, count = reached.args
        finally:
            handle.remove()
        leaves, self._spec = tree_flatten(outputs)
        if not all(isinstance(leaf, Tensor) and leaf.dim() and len(leaf) == count for leaf in leaves):
            raise ConfigError(f'cache_features: {self.name} does not return a row of features for each image')
        self._dtypes = [leaf.dtype for leaf in leaves]
        return list(zip(*(leaf.cpu() for leaf in leaves)))

    @contextmanager
    def replaying(self) -> Iterator[None]:
        """Give the stored features of each batch that has them; preprocessor and part run for a batch without."""
        preprocessor = self.model.data_preprocessor
        processed, computed = preprocessor.forward, self.module.forward

        def preprocess(data: dict[str, Any], training: bool = False) -> dict[str, Any]:
            self._features = None
            if FEATURES not in data:
                return processed(data, training)
            rest = preprocessor.cast_data({key: value for key, value in data.items() if key != 'inputs'})
            stacked = (leaf if isinstance(leaf, Tensor) else torch.stack(list(leaf)) for leaf in rest.pop(FEATURES))
            self._features = [leaf.to(dtype) for leaf, dtype in zip(stacked, self._dtypes)]
            image = torch.zeros((), device=self._features[0].device)
            return dict(rest, inputs=image.expand(len(data['inputs']), *data['inputs'][0].shape))

        def forward(*args, **kwargs):
            if self._features is None:
                return computed(*args, **kwargs)
            self.calls += 1
            return tree_unflatten(self._features, self._spec)

        preprocessor.forward, self.module.forward = preprocess, forward
        try:
            yield
        finally:
            del preprocessor.forward, self.module.forward
            self._features = None

    @torch.no_grad()
    def check(self, data: dict[str, Any], blind: dict[str, Any]) -> None:
        """Check that what is behind the part needs nothing but its features.

        Args:
            data: A batch.
            blind: The same with its features, and zeros for the images.

        Raises:
            ConfigError: The losses differ, or the part runs more than once for a batch.
        """
        self.model.eval()
        try:
            seen = self._losses(data)
            with self.replaying():
                self.calls = 0
                unseen = self._losses(blind)
        finally:
            self.model.train()
        if self.calls != 1:
            raise ConfigError(f'cache_features: {self.name} runs {self.calls} times for an image, not once')
        for key, value in seen.items():
            if not torch.allclose(value, unseen[key], rtol=1e-3, atol=1e-5, equal_nan=True):
                raise ConfigError(
                    f'cache_features: what is behind {self.name} needs the image, too: {key} is '
                    f'{float(value.sum()):g} with it and {float(unseen[key].sum()):g} without'
                )

    @torch.no_grad()
    def runs_once(self, blind: dict[str, Any]) -> bool:
        """Return whether validating a batch that has its features takes them once."""
        self.model.eval()
        try:
            with self.replaying():
                self.calls = 0
                self.model.val_step(dict(blind))
                return self.calls == 1
        finally:
            self.model.train()

    def _losses(self, data: dict[str, Any]) -> dict[str, Tensor]:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            losses = self.model(**self.model.data_preprocessor(dict(data), True), mode='loss')
        flat = {key: value if is_seq_of(value, Tensor) else [value] for key, value in losses.items()}
        return {key: torch.stack([one.float().sum() for one in values]) for key, values in flat.items()}


def _first(value: Any) -> Any:
    """Return what a batch of one has for its sample."""
    first = value[0]
    return first.cpu() if hasattr(first, 'cpu') else first


def _frozen_outside(model: nn.Module, part: nn.Module) -> bool:
    inside = {id(parameter) for parameter in part.parameters()}
    return any(not parameter.requires_grad and id(parameter) not in inside for parameter in model.parameters())


def _reason(model: nn.Module, candidates: Mapping[str, nn.Module]) -> str:
    """Say why no part of a model runs once."""
    backbone = getattr(model, 'backbone', model)
    trained = [name for name, parameter in backbone.named_parameters() if parameter.requires_grad]
    where = 'model.backbone' if backbone is not model else 'the model'
    if trained and len(trained) < len(list(backbone.parameters())):
        more = f' and {len(trained) - 3} more' if len(trained) > 3 else ''
        return f'{where} is frozen but for {", ".join(trained[:3])}{more}; a part that runs once trains nothing'
    if trained:
        return f'{where} is trained; freeze it, such as by frozen=True of mmlape.TimmViT'
    if not candidates:
        return f'{where} has parts in training mode, whose outputs change: {type(backbone).__name__}'
    return f'{", ".join(candidates)} is frozen, but gets no images of the size of the batch as its one argument'
