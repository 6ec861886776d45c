"""What a file is, for its user: rows to print, notes, and the configuration that loads it."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from mmlape.checkpoint.key_maps import Weights
from mmlape.checkpoint.lookup import Candidate
from mmlape.checkpoint.metadata import ambiguity
from mmlape.errors import CheckpointError
from mmlape.models.base.finding import FindsConfigs
from mmlape.models.base.tensor_names import Description, TensorNames
from mmlape.models.grid import Grid
from mmlape.models.names import parameters

UNTOLD = (
    'type',
    'arch',
    'img_size',
    'patch_size',
    'in_channels',
    'window_size',
    'out_indices',
    'patch_padding',
    'interpolate_mode',
    'init_cfg',
)
"""What configurations say beside the arguments that every layout must have a place for, or refuse."""


class DescribesFiles(FindsConfigs):
    """Describes files."""

    def describe(
        self, model_class: type, weights: Weights, path: str, candidates: Iterable[Candidate] = ()
    ) -> Description:
        """Describe a file; ``config`` is the complete one that loads it, None if nothing tells it."""
        rows, notes, found = (self.rows(weights), self.notes(weights), self.find(model_class, weights, candidates))
        if found is None:
            return Description(rows | _shapes(weights, self.names), None, notes)
        if found.model is not None:
            rows = {**({'model': found.name} if found.name else {}), **rows, **_printable(self.record(found.model))}
            notes += filter(None, [ambiguity(weights.recorded, found.model)])
        init_cfg = dict(type='Pretrained', checkpoint=path)
        return Description(rows, {**found.config, 'init_cfg': init_cfg}, notes)

    def rows(self, weights: Weights) -> dict[str, Any]:
        """Return printable values that names, shapes and the record of a file tell, by name."""
        sizes = dict(zip(('width', 'layers'), self.size(weights)))
        tables = {name: tuple(weights.tensors[name].shape) for name in self.names.tables(weights)[:1]}
        known = {key: value for key, value in sizes.items() if value is not None}
        return known | tables | _printable(weights.recorded)

    def notes(self, weights: Weights) -> list[str]:
        """Return what a user has to know of a file that no configuration says."""
        return []

    def arguments(self, model_class: type, weights: Weights) -> dict[str, Any]:
        """Return the arguments that a file records, beside those that no layout needs a place for."""
        defaults, config = parameters(model_class), weights.recorded.get('config')
        described = {**(config if isinstance(config, Mapping) else {}), **weights.recorded}
        always = ('pe_type', *self.assumed_arguments)
        return {
            key: value
            for key, value in described.items()
            if key in defaults and key not in UNTOLD and (key in always or value != defaults[key])
        }

    def view(self, model_class: type, weights: Weights, grid: Grid | None, path: str) -> dict[str, Any]:
        """Return the configuration of a model that shows the position encodings of a file with a PE of ``grid``.

        Raises:
            CheckpointError: If nothing tells it.
        """
        found = self.find(model_class, weights if grid is None else weights.on_grid(grid))
        if found is None:
            raise CheckpointError(
                f'checkpoint {path} is of no model that has a name: name its config too, CONFIG@{path}'
            )
        return {**found.config, 'init_cfg': None}


def _shapes(weights: Weights, names: TensorNames) -> dict[str, Any]:
    """Return what describes a file of an unknown model: its norms, and the shapes of the first layer."""
    norms = [name for name, value in weights.tensors.items() if re.search(r'norm\w*\.\w+$', name)]
    kinds_of_norm = dict.fromkeys(re.sub(r'\.\d+\.', '.*.', name.rpartition('.')[0]) for name in norms)
    layers = names.layers(weights)
    first = (f'{name} {tuple(value.shape)}' for name, value in (layers[0] if layers else {}).items())
    return {'norms': ', '.join(kinds_of_norm) or 'none', 'first layer': ', '.join(first)}


def _printable(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a record has, as a description shows it."""
    shown = {key: value for key, value in record.items() if key not in ('config', 'grid')}
    return shown | ({'pe grid': '{} x {}'.format(*record['grid'])} if 'grid' in record else {})
