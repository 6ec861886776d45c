"""The papers' figures, from the metafiles of the configs and from study files, which are their one home."""

import functools
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path

import yaml

from mmlape.files import parse_yaml
from mmlape.lab.studies.study import StudyArm, StudyFile
from mmlape.lab.studies.study_file import find_arm
from mmlape.mim import mim_root

METRICS = {
    'box AP': 'coco/bbox_mAP',
    'mask AP': 'coco/segm_mAP',
    'mIoU': 'mIoU',
    'top-1': 'accuracy/top1',
    '25-shot': 'few-shot/25-shot',
}
"""The keys of the metrics that papers are quoted for."""


@dataclass(frozen=True)
class Quotation:
    """The figures of one paper for a config."""

    paper: str  # 'LaPE (ICCV 2023)'
    runs: str  # how many runs a figure is of, as the paper says it
    dataset: str
    figures: dict[str, str]  # as the paper prints them, ``{metric: text}``
    note: str = ''  # what keeps a figure from being what the paper says; empty if nothing does

    @property
    def short(self) -> str:
        """The paper without conference and year."""
        return self.paper.partition(' (')[0]


@dataclass(frozen=True)
class IndexEntry:
    """The entry of a config in the metafile of its folder, or of an arm in its study."""

    # parameters, flops: exact numbers, for one image of ``size``, (height, width); None if not
    # given
    parameters: int | None = None
    flops: int | None = None
    size: tuple[int, ...] = ()
    # 'Iterations' or 'Epochs', and how many; None if not given
    length: tuple[str, int] | None = None
    batch: int | None = None  # the recipe's total batch
    quotations: tuple[Quotation, ...] = ()
    # the papers' figures for fractions of the training images
    fractions: dict[Fraction, Quotation] = field(default_factory=dict)

    @property
    def results(self) -> dict[str, str]:
        """The papers' final figures by metric.

        Another paper than LaPE's is named, as in '80.00; 80.1 (DPN)'.
        """
        texts: dict[str, list[str]] = {}
        for quotation in self.quotations:
            source = '' if quotation.short == 'LaPE' else f' ({quotation.short})'
            for metric, figure in quotation.figures.items():
                texts.setdefault(metric, []).append(figure + source)
        return {metric: '; '.join(figures) for metric, figures in texts.items()}

    def at_fraction(self, share: Fraction) -> 'IndexEntry':
        """Return the entry with the papers' figures for a fraction of the images instead of those for all."""
        if share == 1:
            return self
        return replace(self, quotations=(self.fractions[share],) if share in self.fractions else ())


@functools.cache
def read_metafiles(section: str) -> dict[str, dict]:
    """Return the 'Models' or the 'Collections' of all metafiles by name.

    Every value is a text: 40.660 has three decimals in the paper.
    """
    files = sorted((mim_root() / 'configs').rglob('metafile.yml'))
    contents = [parse_yaml(file.read_text(encoding='utf-8'), yaml.BaseLoader) for file in files]
    return {entry['Name']: entry for content in contents for entry in content.get(section, ())}


def index_entry(config: str, parameters: int | None = None) -> IndexEntry | None:
    """Return the entry of a config or of an arm of a study; None if there is none.

    Args:
        config: Its name or its file, or ``STUDY.yml:ARM``.
        parameters: The number that the trained model has, if it was counted. If it differs from the
            config's, the model is another one (other classes, another position embedding), which
            has no entry.
    """
    entry = read_metafiles('Models').get(Path(config).stem)
    if entry is None:
        return _arm_entry(config, parameters)
    facts = entry.get('Metadata', {})
    keys = ('Parameters', 'FLOPs', 'Training Batch')
    counts = {key: int(facts[key]) for key in keys if key in facts}
    lengths = [(unit, int(facts[unit])) for unit in ('Iterations', 'Epochs') if unit in facts]
    results = [result for result in entry.get('Paper Results', ()) if 'Epoch' not in result]
    if parameters and counts.get('Parameters') not in (None, parameters):
        return None
    return IndexEntry(
        counts.get('Parameters'),
        counts.get('FLOPs'),
        tuple(int(side) for side in facts.get('Input Size', ())),
        lengths[0] if lengths else None,
        counts.get('Training Batch'),
        tuple(map(_quotation, results)),
        _fractions(entry['Paper Fractions']) if 'Paper Fractions' in entry else {},
    )


def paper_figures(study: StudyFile, arm: StudyArm) -> dict[str, str]:
    """Return the figures of a study's paper for an arm by the paper's metric, as printed.

    Those of an arm that is its base are in the metafile of that config.
    """
    if arm.overrides or arm.variables:
        return ({study.metric: arm.figure} if arm.figure else {}) | dict(arm.also)
    entry, printed = index_entry(Path(arm.base).name), {key: name for name, key in METRICS.items()}
    quotations = entry.quotations if entry else ()
    own = (one for one in quotations if one.paper == study.paper)
    return {printed[key]: figure for quotation in own for key, figure in quotation.figures.items()}


def _arm_entry(config: str, parameters: int | None) -> IndexEntry | None:
    """Return the entry of an arm of a study.

    The study's figure for it, and its base's length and batch.
    """
    study, arm = find_arm(config) or (None, None)
    if arm is None or not arm.overrides:
        return index_entry(arm.base, parameters) if arm else None
    base = index_entry(arm.base)
    kept = base and not any(
        key.startswith(('train_cfg', 'train_dataloader')) for key in arm.overrides
    )
    quotations: tuple[Quotation, ...] = ()
    if arm.figure is not None:
        figure = f'{arm.figure} relative to {arm.relative_to}' if arm.relative_to else arm.figure
        paper = f'{study.paper}, {study.table}' if study.table else study.paper
        figures = {METRICS.get(study.metric, study.metric): figure}
        figures |= {METRICS[name]: text for name, text in arm.also.items() if name in METRICS}
        quotations = (Quotation(paper, study.runs, study.dataset, figures),)
    return IndexEntry(
        length=base.length if kept else None,
        batch=base.batch if kept else None,
        quotations=quotations,
    )


def _quotation(result: dict) -> Quotation:
    figures = {METRICS[name]: value for name, value in result['Metrics'].items() if name in METRICS}
    return Quotation(
        result['Paper'], result['Runs'], result['Dataset'], figures, result.get('Note', '')
    )


def _fractions(entry: dict) -> dict[Fraction, Quotation]:
    source, metric = (entry['Paper'], entry['Runs']), METRICS[entry['Metric']]
    return {
        Fraction(share): Quotation(
            *source, f'{entry["Dataset"]}, {share} of the images', {metric: figure}
        )
        for share, figure in entry['Figures'].items()
    }
