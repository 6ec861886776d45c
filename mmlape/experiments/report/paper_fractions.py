"""The papers' figures for fractions of the training images (DPN, Table 5), from the metafiles."""

import functools
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import yaml

from mmlape.experiments.report.paper import METRICS, IndexEntry, Quotation
from mmlape.mim import mim_root


def at_fraction(known: IndexEntry | None, config: str, share: Fraction) -> IndexEntry | None:
    """Return a config's entry with the papers' figures for a fraction of the images instead of those for all."""
    if known is None or share == 1:
        return known
    quoted = fraction_figures(config).get(share)
    return replace(known, quotations=(quoted,) if quoted else ())


def fraction_figures(config: str) -> dict[Fraction, Quotation]:
    """Return a paper's figures for a config by the fraction of the training images."""
    return _index().get(Path(config).stem, {})


@functools.cache
def _index() -> dict[str, dict[Fraction, Quotation]]:
    found = {}
    for file in sorted((mim_root() / 'configs').rglob('metafile.yml')):
        content = yaml.load(file.read_text(encoding='utf-8'), yaml.BaseLoader)
        for entry in content.get('Models', ()):
            if 'Paper Fractions' in entry:
                found[entry['Name']] = _quotations(entry['Paper Fractions'])
    return found


def _quotations(entry: dict) -> dict[Fraction, Quotation]:
    return {
        Fraction(share): Quotation(
            entry['Paper'],
            entry['Runs'],
            f'{entry["Dataset"]}, {share} of the images',
            {METRICS[entry['Metric']]: text},
        )
        for share, text in entry['Figures'].items()
    }
