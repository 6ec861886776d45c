"""A page of a dataset's images with their annotations, as stored and as the pipeline returns them."""

import base64
import copy
import html
import io
import random
from pathlib import Path

import mmcv
import numpy as np
import torch
from mmengine import Config
from mmengine.registry import DATASETS, init_default_scope
from mmengine.structures import BaseDataElement
from PIL import Image

from mmlape.analysis.drawing import draw_instances, draw_label_map, enlarge
from mmlape.datasets.checks.full import FullReport
from mmlape.datasets.formats import iter_sources
from mmlape.datasets.formats.base import DataSummary
from mmlape.datasets.issues import ERROR
from mmlape.datasets.palette import class_palette
from mmlape.datasets.sources import spread
from mmlape.datasets.transforms import guard_loading
from mmlape.errors import ConfigError, DataError
from mmlape.files import atomic_path

MAX_BARS = 40  # of the histogram
STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 1360px; padding: 0 1.5rem; color: #222 }
h1 { font-size: 1.5rem; margin-bottom: 0 } h2 { font-size: 1.1rem; margin: 2rem 0 .6rem } p { margin: .3rem 0 }
.muted { color: #666 } .error { color: #b3261e } .warning { color: #8a5a00 }
.bars { columns: 4 280px; font-size: 13px }
.bar { display: flex; align-items: center; gap: .5rem; height: 1.5em; break-inside: avoid }
.bar span:first-child { width: 9em; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; text-align: right }
.bar i { height: .8em; min-width: 1px; border-radius: 2px }
.grid { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 600px), 1fr)); gap: 1.2rem }
figure { margin: 0; border: 1px solid #ddd; border-radius: 6px; padding: .7rem; background: #fafafa }
.pair { display: grid; grid-template-columns: 1fr 1fr; gap: .5rem; align-items: start } .pair img { width: 100% }
.pair small { color: #666 } figcaption { font-size: 13px; margin-top: .4rem; overflow-wrap: anywhere }
.chip { display: inline-block; margin-right: .8em } .chip i { display: inline-block; width: .8em; height: .8em;
border-radius: 2px; margin-right: .35em; vertical-align: -1px }
"""


def write_page(cfg: Config, folder: str | Path, split: str, num: int, report: FullReport) -> Path:
    """Write ``index.html``, with its images inside.

    Args:
        cfg: A config of detection, segmentation or classification.
        folder: The folder of the page.
        split: 'train', 'val' or 'test'.
        num: Number of images, evenly spread over the dataset.
        report: The full check's, for counts and issues.

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
    except Exception as error:  # the errors that dataset classes raise at bad data have no common base
        raise DataError(f'the {split} data cannot be built, so there is nothing to browse: {error}') from error
    classes = list(processed.metainfo['classes'])
    random.seed(0), np.random.seed(0), torch.manual_seed(0)
    cards = [_card(raw, processed, index, classes) for index in spread(range(len(raw)), num)]
    summary = next((part for part in report.summaries if part.split == split), None)
    parts = [f'<h1>{split} data</h1>', *_head(summary, report, split), '<h2>Images</h2>']
    parts += ['<div class="grid">', *cards, '</div>']
    body = '\n'.join(parts)
    page = Path(folder) / 'index.html'
    with atomic_path(page) as partial:
        partial.write_text(
            '<!doctype html>\n<html lang="en"><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f'<title>{split} data</title>\n<style>{STYLE}</style>\n{body}\n</html>\n',
            encoding='utf-8',
        )
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


def _card(raw, processed, index: int, classes: list[str]) -> str:
    """Show an image as stored beside the pipeline's output, or the reason why it cannot be loaded."""
    try:
        packed = raw[index]
        drawn = [_draw(part, classes) for part in (packed, processed[index])]
    except Exception as error:  # a broken image is what the page is for
        return f'<figure class="error">{index}: {html.escape(str(error))}</figure>'
    halves = ''.join(
        f'<div>{_inline(image)}<small>{label}, {size[1]} x {size[0]}</small></div>'
        for (image, size, _), label in zip(drawn, ('on disk', 'from the pipeline'))
    )
    caption = f'{index}: {html.escape(str(packed["data_samples"].img_path))}<br>{drawn[0][2]}'
    return f'<figure><div class="pair">{halves}</div><figcaption>{caption}</figcaption></figure>'


def _draw(packed: dict, classes: list[str]) -> tuple[np.ndarray, tuple[int, int], str]:
    """Draw a packed sample; return image, (height, width) before it was enlarged, and its classes as HTML."""
    image, sample = _as_image(packed['inputs']), packed['data_samples']
    size = image.shape[:2]
    if 'gt_instances' in sample:
        labels = [int(label) for label in sample.gt_instances.labels]
        counts = {name: labels.count(label) for label, name in enumerate(classes) if label in labels}
        caption = ', '.join(f'{count} {name}' for name, count in counts.items()) or 'no object'
        return draw_instances(image, sample.gt_instances, classes), size, html.escape(caption)
    if 'gt_sem_seg' in sample:
        drawn, colours = draw_label_map(image, sample.gt_sem_seg.data[0].numpy(), classes)
        return drawn, size, ''.join(_chip(name, colour) for name, colour in colours.items()) or 'no label'
    return enlarge(image), size, html.escape(_class_name(sample, classes))


def _class_name(sample: BaseDataElement, classes: list[str]) -> str:
    label = sample.get('gt_label')
    return 'no label' if label is None else ', '.join(classes[int(value)] for value in label.flatten())


def _as_image(inputs: torch.Tensor) -> np.ndarray:
    """Convert (C, H, W), BGR, to (H, W, 3), RGB; values other than bytes are scaled to [0, 255]."""
    image = inputs.permute(1, 2, 0).numpy()
    if image.dtype != np.uint8:
        low, high = float(image.min()), float(image.max())
        image = (255 * (image - low) / max(high - low, 1e-6)).astype(np.uint8)
    return mmcv.bgr2rgb(np.ascontiguousarray(image))


def _inline(image: np.ndarray) -> str:
    file = io.BytesIO()
    Image.fromarray(image).save(file, 'JPEG', quality=85)
    return f'<img alt="" loading="lazy" src="data:image/jpeg;base64,{base64.b64encode(file.getvalue()).decode()}">'


def _chip(name: str, colour: tuple[int, ...]) -> str:
    return f'<span class="chip"><i style="background:rgb{tuple(colour)}"></i>{html.escape(name)}</span>'


def _head(summary: DataSummary | None, report: FullReport, split: str) -> list[str]:
    """Show counts, issues and the histogram of classes."""
    if summary is None:
        return []
    facts = [f'{count:,} {what}' for what, count in summary.facts.items()]
    images = [] if summary.images is None else [f'{summary.images:,} images']
    seen = f'{len(summary.seen)} of {summary.num_classes} classes seen'
    parts = [f'<p class="muted">{html.escape(summary.path)}<br>{", ".join([*images, seen, *facts])}</p>']
    for group in (group for group in report.issues if group.split == split):
        colour = 'error' if group.severity == ERROR else 'warning'
        text = f'{group.severity}: {group.kind}, {group.count:,}. {group.examples[0]}'
        parts.append(f'<p class="{colour}">{html.escape(text)}</p>')
    counts = sorted(((summary.labels[label], label) for label in range(len(summary.classes))), reverse=True)
    if summary.labels:
        palette = class_palette(len(summary.classes))
        most, total = counts[0][0], sum(summary.labels.values())
        bars = [_bar(summary.classes[label], count, most, total, palette[label]) for count, label in counts]
        more = len(bars) - MAX_BARS
        note = f'<p class="muted">{more} rarer classes are left out</p>' if more > 0 else ''
        parts += ['<h2>Classes</h2>', f'<div class="bars">{"".join(bars[:MAX_BARS])}</div>{note}']
    return parts


def _bar(name: str, count: int, most: int, total: int, colour: list[int]) -> str:
    width = 7 * count / most
    return (
        f'<div class="bar"><span title="{html.escape(name)}">{html.escape(name)}</span>'
        f'<i style="width:{width:.2f}em;background:rgb{tuple(colour)}"></i><span>{count / total:.1%}</span></div>'
    )
