"""A page of a dataset's images with their annotations, as stored and as the pipeline returns them."""

import base64
import copy
import io
from pathlib import Path

import numpy as np
import torch
from jinja2 import Environment, StrictUndefined
from mmengine import Config
from mmengine.registry import DATASETS, init_default_scope
from mmengine.structures import BaseDataElement
from PIL import Image

from mmlape.errors import ConfigError, DataError
from mmlape.files import atomic_path
from mmlape.lab.analysis.drawing import draw_sample
from mmlape.lab.datasets.checks import FullReport, spread
from mmlape.lab.datasets.folders import class_palette
from mmlape.lab.datasets.formats import iter_sources
from mmlape.lab.datasets.formats.base import DataSummary
from mmlape.lab.datasets.transforms import guard_loading
from mmlape.lab.engine.seeding import seed_everything

MOST_BARS = 40  # of the histogram


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
    seed_everything(0)
    cards = [_card(raw, processed, index, classes) for index in spread(range(len(raw)), num)]
    summary = next((part for part in report.summaries if part.split == split), None)
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(Path(__file__).with_suffix('.html').read_text(encoding='utf-8'))
    issues = [group for group in report.issues if group.split == split]
    content: dict[str, list] = {}
    if summary:
        images = [] if summary.images is None else [f'{summary.images:,} images']
        seen = f'{len(summary.seen)} of {summary.num_classes} classes seen'
        facts = [*images, seen, *(f'{count:,} {what}' for what, count in summary.facts.items())]
        content = dict(facts=facts, bars=_bars(summary))
    page = Path(folder) / 'index.html'
    with atomic_path(page) as partial:
        text = template.render(split=split, cards=cards, summary=summary, issues=issues, most=MOST_BARS, **content)
        partial.write_text(text, encoding='utf-8')
    return page


def _without_augmentation(cfg: Config, split: str) -> Config:
    """Return a config whose datasets only load images and annotations."""
    cfg = copy.deepcopy(cfg)
    sources = list(iter_sources(cfg, [split]))
    if not sources:
        raise ConfigError(f'the {split} data of {cfg.filename} is of no known format, so it cannot be browsed')
    for source in sources:
        steps = [step for step in source.cfg['pipeline'] if 'Load' in str(step['type'])]
        source.cfg['pipeline'] = [*steps, dict(type=source.pack_transform)]
    return cfg


def _card(raw, processed, index: int, classes: list[str]) -> dict:
    """Return an image as stored and the pipeline's output, or the reason why it cannot be loaded."""
    try:
        packed = {'on disk': raw[index], 'from the pipeline': processed[index]}
        images = [_drawn(part, classes) | {'title': title} for title, part in packed.items()]
    except Exception as error:  # a broken image is what the page is for
        return dict(index=index, error=str(error))
    sample = packed['on disk']['data_samples']
    path = sample.get('img_path') or f'image {index}'
    return dict(index=index, error='', images=images, path=path, labels=_labels(sample, classes))


def _drawn(packed: dict, classes: list[str]) -> dict:
    """Return a packed sample's drawing as a `data:` address, and the size before it was enlarged."""
    sample, file = packed['data_samples'], io.BytesIO()
    image = as_image(packed['inputs'], is_bgr='img_path' in sample)
    Image.fromarray(draw_sample(image, sample, classes)).save(file, 'JPEG', quality=85)
    uri = f'data:image/jpeg;base64,{base64.b64encode(file.getvalue()).decode()}'
    return dict(uri=uri, height=image.shape[0], width=image.shape[1])


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


def _bars(summary: DataSummary) -> list[dict]:
    """Return the bars of the classes' histogram, the most frequent first."""
    if not summary.labels:
        return []
    labels = range(len(summary.classes))
    counts = sorted(((summary.labels[label], label) for label in labels), reverse=True)
    palette = class_palette(len(summary.classes))
    most, total = counts[0][0], sum(summary.labels.values())
    return [
        dict(name=summary.classes[label], width=7 * count / most, share=count / total, colour=tuple(palette[label]))
        for count, label in counts
    ]
