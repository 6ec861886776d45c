"""The papers' figures of our configs, from their metafiles, which are their one home."""

import functools
from fractions import Fraction
from pathlib import Path

import yaml

from mmlape.lab.evaluation.metric_names import KEYS
from mmlape.lab.extension import PaperFigures, Quotation
from mmlape.openmmlab.mim import mim_root


@functools.cache
def read_metafiles(section: str) -> dict[str, dict]:
    """Return the 'Models' or the 'Collections' of all metafiles by name.

    Every value is a text: 40.660 has three decimals in the paper.
    """
    files = sorted((mim_root() / 'configs').rglob('metafile.yml'))
    loader = getattr(yaml, 'CBaseLoader', yaml.BaseLoader)
    contents = [yaml.load(file.read_text(encoding='utf-8'), loader) for file in files]
    return {entry['Name']: entry for content in contents for entry in content.get(section, ())}


def paper_figures(config: str) -> PaperFigures | None:
    """Return the entry of a config in the metafile of its folder; None if there is none."""
    entry = read_metafiles('Models').get(config)
    if entry is None:
        return None
    facts = entry.get('Metadata', {})
    keys = ('Parameters', 'FLOPs', 'Training Batch')
    counts = {key: int(facts[key]) for key in keys if key in facts}
    lengths = [(unit, int(facts[unit])) for unit in ('Iterations', 'Epochs') if unit in facts]
    results = [result for result in entry.get('Paper Results', ()) if 'Epoch' not in result]
    return PaperFigures(
        counts.get('Parameters'),
        counts.get('FLOPs'),
        tuple(int(side) for side in facts.get('Input Size', ())),
        lengths[0] if lengths else None,
        counts.get('Training Batch'),
        tuple(map(_quotation, results)),
        _fractions(entry['Paper Fractions']) if 'Paper Fractions' in entry else {},
    )


def weights_source(path: str) -> str | None:
    """Return how a file of starting weights comes to be; None if nothing tells."""
    folder = Path(path).parent.name
    for name, entry in read_metafiles('Models').items():
        is_of_run, is_kept = name == folder, path.endswith(entry.get('Starts Others As', '/'))
        if is_of_run or is_kept:
            config = f'mmlape::{entry["Config"].removeprefix("configs/").removesuffix(".py")}'
            converted = f', then `mmlape checkpoint convert CHECKPOINT {path} --to mmlape`' if is_kept else ''
            return f'`mmlape train {config}` makes it{converted}'
    return 'configs/running.md lists such files and their sources' if folder == 'pretrained' else None


def _quotation(result: dict) -> Quotation:
    figures = {KEYS[name]: value for name, value in result['Metrics'].items() if name in KEYS}
    return Quotation(result['Paper'], result['Runs'], result['Dataset'], figures, result.get('Note', ''))


def _fractions(entry: dict) -> dict[Fraction, Quotation]:
    source, metric = (entry['Paper'], entry['Runs']), KEYS[entry['Metric']]
    return {
        Fraction(share): Quotation(*source, f'{entry["Dataset"]}, {share} of the images', {metric: figure})
        for share, figure in entry['Figures'].items()
    }
