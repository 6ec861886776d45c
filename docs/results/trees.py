#!/usr/bin/env python
"""Values, table and figure of `docs/results/trees.md`: `python docs/results/trees.py WORK_DIR [--figure FILE]`.

WORK_DIR has the runs of the page, ARM/seed_S. Each predicts once on the images that no training sees; the values are
kept in `docs/results/trees.json`. The figure has a piece of the third for validation.
"""

import argparse
import contextlib
import io
import json
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from PIL import Image
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

import mmlape
from mmlape.console.figures import COLOURS, save_figure
from mmlape.console.tables import markdown_table, text_table
from mmlape.files import write_bytes
from mmlape.lab.experiments.statistics import estimate
from mmlape.lab.inference.prediction import Model
from mmlape.lab.inference.results import Detection
from mmlape.lab.runs.schema import read_record
from mmlape.new.trees import fetch

VALUES = Path(__file__).with_suffix('.json')
SITES = {'same place': '2019_YELL_2_541000_4977000_image_crop', 'OSBS': 'OSBS_029', 'SOAP': 'SOAP_061'}
"""Where the images of the test were taken, and their files."""
TITLES = {
    'frozen': 'frozen ViT-S/14, read-only adapter, Faster R-CNN',
    'fine_tuned': 'the same ViT fine-tuned with layer decay',
    'initial': 'a small ViT from initial values, Faster R-CNN',
    'plain_detr': 'frozen ViT-S/14, Plain-DETR',
}
MOST = 1000
"""Detections of an image that count."""
TRAINED, THIRD = '2019_YELL_2_528000_4978000_image_crop2', 1648
"""The photograph that is trained on, and the row from which on it is for validation."""
PIECE = (900, 250, 1500, 650)
"""Left, top, right and lower of what the figure shows of that third."""
SCORE = 0.5

Values = dict[str, dict[str, dict[str, list[float]]]]
"""AP and AP50 by arm, seed and site."""


def read_boxes(file: Path) -> np.ndarray:
    """Read the boxes of a Pascal VOC file, (N, 4): left, top, right, lower; alive and dead trees are trees."""
    corners = ('xmin', 'ymin', 'xmax', 'ymax')
    objects = ET.parse(file).getroot().iter('object')
    return np.array([[float(item.findtext(f'bndbox/{corner}', '')) for corner in corners] for item in objects])


def score(prediction: Detection, truth: np.ndarray) -> list[float]:
    """Return AP and AP50 of an image by pycocotools."""
    height, width = prediction.size
    boxes = prediction.boxes
    if not len(boxes):
        return [0.0, 0.0]

    def rows(corners: np.ndarray) -> list[dict]:
        sizes = np.concatenate([corners[:, :2], corners[:, 2:] - corners[:, :2]], 1)
        return [
            dict(id=place, image_id=1, category_id=1, bbox=box.tolist(), area=float(box[2] * box[3]), iscrowd=0)
            for place, box in enumerate(sizes, 1)
        ]

    objects = COCO()
    images, categories = [dict(id=1, width=width, height=height)], [dict(id=1, name='tree')]
    objects.dataset = dict(images=images, annotations=rows(truth), categories=categories)
    with contextlib.redirect_stdout(io.StringIO()):
        objects.createIndex()
        detections = [row | dict(score=float(value)) for row, value in zip(rows(boxes), prediction.scores)]
        evaluation = COCOeval(objects, objects.loadRes(detections), 'bbox')
        evaluation.params.maxDets = [1, 10, MOST]
        evaluation.evaluate()
        evaluation.accumulate()
    precision = evaluation.eval['precision'][..., 0, -1]  # (IoU, recall, class)
    return [float(precision.mean()), float(precision[0].mean())]


def predict(model: Model, image: Path) -> Detection:
    """Predict on an image, by the tiles of the model's config."""
    (prediction,) = model.predict([image])
    return prediction


def finished(work_dir: Path) -> Iterator[tuple[str, str, Path]]:
    """Yield arm, seed and folder of each finished run."""
    for arm in TITLES:
        for folder in sorted((work_dir / arm).glob('seed_*')):
            if (folder / 'run.json').is_file() and read_record(folder).state == 'finished':
                yield arm, folder.name.removeprefix('seed_'), folder


def evaluate(work_dir: Path, data: Path) -> Values:
    """Add the values of the runs that have none yet, and return all."""
    values: Values = json.loads(VALUES.read_text(encoding='utf-8')) if VALUES.is_file() else {}
    for arm, seed, folder in finished(work_dir):
        if seed in values.setdefault(arm, {}):
            continue
        record = read_record(folder)
        metrics = record.last.metrics if record.last else {}
        model = mmlape.load(str(folder), device='cpu')
        values[arm][seed] = dict(
            validation=[metrics['coco/bbox_mAP'], metrics['coco/bbox_mAP_50']],
            **{
                site: score(predict(model, data / f'{name}.png'), read_boxes(data / f'{name}.xml'))
                for site, name in SITES.items()
            },
        )
        write_bytes(VALUES, (json.dumps(values, indent=1) + '\n').encode())
        print(arm, seed, values[arm][seed])
    return values


def table(values: Values) -> str:
    """Return mean and 95 % interval of AP50, and the mean of AP, in percent, by arm and site."""
    sites = ('validation', *SITES)
    rows = []
    for arm, by_seed in values.items():
        cells = []
        for site in sites:
            ap, ap50 = (np.array([one[site] for one in by_seed.values()]) * 100).T
            mean = estimate(ap50.tolist())
            interval = f' ({mean.low:.1f} to {mean.high:.1f})' if mean.low is not None else ''
            cells.append(f'{mean.mean:.1f}{interval}; {ap.mean():.1f}')
        rows.append((TITLES[arm], str(len(by_seed)), *cells))
    return markdown_table(text_table(('arm', 'seeds', *sites), rows))


def draw(run: Path, data: Path, file: Path) -> None:
    """Draw a piece of the third for validation: the boxes of the file, and those that a run predicts."""
    left, top, right, low = PIECE
    path = data / f'{TRAINED}.png'
    with Image.open(path) as image:
        third = image.convert('RGB').crop((0, THIRD, *image.size))
    (prediction,) = mmlape.load(str(run), device='cpu').predict([third])
    boxes = dict(annotated=read_boxes(path.with_suffix('.xml')) - [0, THIRD, 0, THIRD])
    boxes['found'] = prediction.above(SCORE).boxes
    figure = Figure(figsize=(14.4, 5.3), layout='constrained')
    for axes, (caption, corners) in zip(figure.subplots(1, 2), boxes.items()):
        axes.imshow(np.asarray(third))
        for a, b, c, d in corners:
            axes.add_patch(Rectangle((a, b), c - a, d - b, fill=False, ec=COLOURS[5], lw=2))
        middles = (corners[:, :2] + corners[:, 2:]) / 2
        inside = ((middles > (left, top)) & (middles < (right, low))).all(1).sum()
        axes.set(xlim=(left, right), ylim=(low, top), xticks=[], yticks=[])
        axes.set_title(f'{inside} trees {caption}', fontsize=20)
    save_figure(figure, file)


def main(argv: Sequence[str] | None = None) -> None:
    """Evaluate, print the table, and draw the figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('work_dir', type=Path, metavar='WORK_DIR')
    parser.add_argument('--figure', type=Path, metavar='FILE', help='of --run')
    parser.add_argument('--run', type=Path, metavar='DIR', help='whose predictions are drawn')
    args = parser.parse_args(argv)
    data = fetch()
    print(table(evaluate(args.work_dir, data)))
    if args.figure:
        draw(args.run, data, args.figure)


if __name__ == '__main__':
    main()
