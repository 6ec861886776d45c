"""Table 3 of Dual PatchNorm (TMLR 2023): test accuracies on VTAB-1k, means of three seeds; none was measured by us."""

from collections.abc import Mapping

SOURCE = "Table 3 of the Dual PatchNorm paper (TMLR 2023), means of three seeds; the paper's, not measured by us"
MODELS = ('B/32', 'B/32 + DPN', 'B/16', 'B/16 + DPN')
FIGURES = {
    'natural': {
        'caltech101': (87.1, 87.7, 86.1, 86.6),
        'cifar100': (53.7, 58.1, 35.5, 51.4),
        'dtd': (56.0, 60.7, 60.1, 63.1),
        'flowers102': (83.9, 86.4, 90.8, 91.3),
        'pets': (87.2, 88.0, 90.9, 92.1),
        'sun397': (32.0, 35.4, 33.9, 32.5),
        'svhn': (76.8, 80.3, 76.7, 78.3),
    },
    'specialized': {
        'camelyon': (77.9, 78.5, 81.3, 80.6),
        'eurosat': (94.8, 95.0, 95.9, 95.8),
        'resisc45': (78.2, 81.6, 81.2, 83.5),
        'retinopathy': (71.2, 70.3, 74.7, 73.3),
    },
    'structured': {
        'clevr-count': (58.3, 62.5, 65.2, 73.7),
        'clevr-distance': (52.6, 55.5, 59.8, 48.3),
        'dmlab': (39.2, 40.7, 39.7, 41.0),
        'dsprites-location': (71.3, 60.8, 72.1, 72.4),
        'dsprites-orientation': (59.8, 61.6, 61.9, 63.0),
        'kitti-distance': (73.6, 73.4, 81.3, 80.6),
        'norb-azimuth': (20.7, 20.9, 18.9, 21.6),
        'norb-elevation': (47.2, 34.4, 50.4, 36.2),
    },
}
"""Top-1 in percent of each set, by group; a column for each of ``MODELS``."""
GROUPS = {name: group for group, rows in FIGURES.items() for name in rows}
"""The group of each of the 19 sets."""


def paper_model(model: Mapping) -> str | None:
    """Return which of ``MODELS`` the ``model`` of a configuration is; None for another one."""
    backbone = model['backbone']
    norm = {'none': '', 'dual': ' + DPN'}.get(backbone.get('patch_norm', 'none'), ' + ?')
    name = f'B/{backbone.get("patch_size", 16)}{norm}'
    usual = backbone.get('arch') == 'deit-base' and backbone.get('pe_joining', 'default') == 'default'
    return name if usual and name in MODELS else None


def paper_figures(model: str | None) -> dict[str, float]:
    """Return the figure of each set for one of ``MODELS``; empty for None."""
    if model is None:
        return {}
    place = MODELS.index(model)
    return {name: row[place] for rows in FIGURES.values() for name, row in rows.items()}
