"""Table 3 of Dual PatchNorm (TMLR 2023), from the metafile of VTAB-1k: test accuracies, none measured by us."""

from collections.abc import Mapping

from mmlape.experiments.report.paper import read_metafiles


def paper_table() -> dict:
    """Return the paper's table: ``Paper`` (its source), ``Models``, and ``Groups`` of sets with a figure a model."""
    return read_metafiles('Collections')['VTAB-1k']['Paper Table']


def set_groups() -> dict[str, str]:
    """Return the group of each of the 19 sets."""
    return {name: group for group, rows in paper_table()['Groups'].items() for name in rows}


def paper_model(model: Mapping) -> str | None:
    """Return which of the paper's models the ``model`` of a configuration is; None for another one."""
    backbone = model['backbone']
    norm = {'none': '', 'dual': ' + DPN'}.get(backbone.get('patch_norm', 'none'), ' + ?')
    name = f'B/{backbone.get("patch_size", 16)}{norm}'
    usual = backbone.get('arch') == 'deit-base' and backbone.get('pe_joining', 'default') == 'default'
    return name if usual and name in paper_table()['Models'] else None


def paper_figures(model: str | None) -> dict[str, float]:
    """Return the figure of each set, top-1 in percent, for one of the paper's models; empty for None."""
    if model is None:
        return {}
    place = paper_table()['Models'].index(model)
    return {name: float(row[place]) for rows in paper_table()['Groups'].values() for name, row in rows.items()}
