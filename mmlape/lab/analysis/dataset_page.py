"""A page of a dataset's images with their annotations, as stored and as the pipeline returns them."""

import copy
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from mmengine import Config
from mmengine.registry import DATASETS, init_default_scope
from mmengine.structures import BaseDataElement

from mmlape.console.page import Element
from mmlape.console.page import write_page as write_sections
from mmlape.console.tables import text_table
from mmlape.errors import ConfigError, DataError
from mmlape.lab.datasets.checks import FullReport
from mmlape.lab.datasets.folders import spread
from mmlape.lab.datasets.formats import iter_sources
from mmlape.lab.datasets.formats.base import DataSummary
from mmlape.lab.datasets.transforms import guard_loading, loads
from mmlape.lab.inference.drawing import Colour, draw_sample, palette_of, write_image
from mmlape.lab.training.seeding import seed_everything

LONGEST = 1280  # pixels, to which the page reduces the longer side of an image


def write_page(cfg: Config, folder: str | Path, split: str, num: int, report: FullReport) -> Path:
    """Write ``index.html``, with its images inside.

    ``report`` is the full check's, for counts and issues.

    Raises:
        ConfigError: The split is of no known format.
        DataError: The dataset cannot be built.
    """
    cfg = copy.deepcopy(cfg)
    guard_loading(cfg)
    raw_cfg = _without_augmentation(cfg, split)
    init_default_scope(cfg.default_scope)
    try:
        processed, raw = (DATASETS.build(part[f'{split}_dataloader'].dataset) for part in (cfg, raw_cfg))
    # the errors that dataset classes raise at bad data have no common base
    except Exception as error:
        raise DataError(f'the {split} data cannot be built, so there is nothing to browse: {error}') from error
    classes = list(processed.metainfo['classes'])
    palette = palette_of(cfg, classes, split)
    seed_everything(0)
    issues = [group for group in report.issues if group.split == split]
    lines = [f'{group.severity}: {group.topic}, {group.count:,}. {group.message}' for group in issues]
    summary = next((part for part in report.summaries if part.split == split), None)
    with tempfile.TemporaryDirectory() as images:
        shown = [
            _image(raw, processed, index, classes, palette, Path(images)) for index in spread(range(len(raw)), num)
        ]
        sections = {
            '': [Element(_facts(summary) if summary else ''), Element(lines, 'Found')],
            'Classes': [Element(class_table(summary))] if summary and summary.labels else [],
            'Images': [part for parts in shown for part in parts],
        }
        sections = {title: [part for part in parts if not part.is_empty] for title, parts in sections.items()}
        return write_sections(f'{split} data', sections, tuple(sections), Path(folder) / 'index.html')


def _facts(summary: DataSummary) -> str:
    counts = [] if summary.images is None else [f'{summary.images:,} images']
    counts.append(f'{len(summary.seen)} of {summary.num_classes} classes seen')
    counts += [f'{count:,} {what}' for what, count in summary.facts.items()]
    return f'{summary.path}: {", ".join(counts)}'


def _without_augmentation(cfg: Config, split: str) -> Config:
    """Return a config whose datasets only load images and annotations."""
    cfg = copy.deepcopy(cfg)
    sources = list(iter_sources(cfg, [split]))
    if not sources:
        raise ConfigError(f'the {split} data of {cfg.filename} is of no known format, so it cannot be browsed')
    for source in sources:
        steps = [step for step in source.cfg['pipeline'] if loads(step, cfg.get('default_scope'))]
        source.cfg['pipeline'] = [*steps, dict(type=source.pack_transform)]
    return cfg


def _image(raw, processed, index: int, classes: list[str], palette: list[Colour], folder: Path) -> list[Element]:
    """Draw an image as stored and as the pipeline returns it, or return the reason why it cannot be loaded."""
    try:
        packed = {'on disk': raw[index], 'from the pipeline': processed[index]}
        parts = []
        for title, part in packed.items():
            sample, file = part['data_samples'], folder / f'{index} {title}.jpg'
            image = as_image(part['inputs'], is_bgr='img_path' in sample)
            write_image(draw_sample(image, sample, classes, palette, longest=LONGEST), file)
            parts.append(Element(file, f'{title}, {image.shape[1]} x {image.shape[0]}'))
    except Exception as error:  # a broken image is what the page is for
        return [Element(f'{index}: {error}')]
    sample = packed['on disk']['data_samples']
    path = sample.get('img_path') or f'image {index}'
    return [Element(f'{index}: {path}: {_labels(sample, classes)}'), *parts]


def _labels(sample: BaseDataElement, classes: list[str]) -> str:
    """Return the classes of an image, with the number of objects of each."""
    if 'gt_instances' in sample:
        labels = [int(label) for label in sample.gt_instances.labels]
        counts = {name: labels.count(label) for label, name in enumerate(classes) if label in labels}
        return ', '.join(f'{count} {name}' for name, count in counts.items()) or 'no object'
    present = sample.gt_sem_seg.data.unique() if 'gt_sem_seg' in sample else sample.get('gt_label', [])
    names = [classes[int(label)] for label in present if 0 <= int(label) < len(classes)]
    return ', '.join(names) or 'no label'


def as_image(inputs: torch.Tensor, is_bgr: bool) -> np.ndarray:
    """Convert (C, H, W) to (H, W, 3), RGB; values other than bytes are scaled to [0, 255].

    Files are loaded as BGR; datasets that are arrays have RGB or grey.
    """
    image = inputs.permute(1, 2, 0).numpy()
    if image.dtype != np.uint8:
        low, high = float(image.min()), float(image.max())
        image = (255 * (image - low) / max(high - low, 1e-6)).astype(np.uint8)
    if image.shape[2] == 1:
        return np.repeat(image, 3, axis=2)
    return np.ascontiguousarray(image[..., ::-1] if is_bgr else image)


def class_table(summary: DataSummary) -> pd.DataFrame:
    """Return the share of each class, the most frequent first."""
    counts = sorted(((summary.labels[label], name) for label, name in enumerate(summary.classes)), reverse=True)
    total = sum(summary.labels.values())
    return text_table(('class', 'share'), [(name, f'{count / total:.1%}') for count, name in counts])
