"""The papers' figures: from an extension, and from study files, which quote those of their arms."""

from pathlib import Path

from mmlape.lab.evaluation.names import KEYS
from mmlape.lab.extension import PaperFigures, Quotation, first_answer
from mmlape.lab.studies.study_file import StudyArm, StudyFile, find_arm


def index_entry(config: str, parameters: int | None = None) -> PaperFigures | None:
    """Return what papers print of a config or of an arm of a study; None if nothing.

    Args:
        config: Its name or its file, or ``STUDY.yml:ARM``.
        parameters: The number that the trained model has, if it was counted. If it differs from the
            config's, the model is another one (other classes, another position embedding), of which
            nothing is printed.
    """
    name = Path(config).stem
    entry = first_answer(lambda one: one.paper_figures(name))
    if entry is None:
        return _arm_entry(config, parameters)
    return None if parameters and entry.parameters not in (None, parameters) else entry


def paper_figures(study: StudyFile, arm: StudyArm) -> dict[str, str]:
    """Return the figures of a study's paper for an arm by the paper's metric, as printed.

    Those of an arm that is its base are in the metafile of that config.
    """
    if arm.overrides or arm.variables:
        return ({study.metric: arm.figure} if arm.figure else {}) | dict(arm.also)
    entry, printed = index_entry(Path(arm.base).name), {key: name for name, key in KEYS.items()}
    quotations = entry.quotations if entry else ()
    quoted = (one for one in quotations if one.paper == study.paper)
    return {printed[key]: figure for quotation in quoted for key, figure in quotation.figures.items()}


def _arm_entry(config: str, parameters: int | None) -> PaperFigures | None:
    """Return the entry of an arm of a study.

    The study's figure for it, and its base's length and batch.
    """
    study, arm = find_arm(config) or (None, None)
    if arm is None or not arm.overrides:
        return index_entry(arm.base, parameters) if arm else None
    base = index_entry(arm.base)
    kept = base and not any(key.startswith(('train_cfg', 'train_dataloader')) for key in arm.overrides)
    quotations: tuple[Quotation, ...] = ()
    if arm.figure is not None:
        figure = f'{arm.figure} relative to {arm.relative_to}' if arm.relative_to else arm.figure
        paper = f'{study.paper}, {study.table}' if study.table else study.paper
        figures = {KEYS.get(study.metric, study.metric): figure}
        figures |= {KEYS[name]: text for name, text in arm.also.items() if name in KEYS}
        quotations = (Quotation(paper, study.runs, study.dataset, figures),)
    return PaperFigures(
        length=base.length if kept else None, batch=base.batch if kept else None, quotations=quotations
    )
