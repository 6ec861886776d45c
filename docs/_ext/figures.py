"""Figures: kinds of position encoding, of live models of 14 x 14 patches; the package's folders; scenes of objects."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import cv2
import import_graph
import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

import mmlape.models.position as positions
from mmlape.lab.datasets.mini import objects
from mmlape.models.vit.model import VisionTransformer

SIDE = 14
GRID = (SIDE, SIDE)
ARCH = dict(embed_dims=64, num_layers=2, num_heads=4, feedforward_channels=64)
PLACES = {'the corner': (0, 0), 'the upper edge': (0, SIDE // 2), 'the centre': (SIDE // 2, SIDE // 2)}


def draw_kinds(folder: Path) -> Iterator[tuple[str, str, str, str, Path]]:
    """Draw each registered kind; yield its name, contract, docstring's first line, alternative text and file."""
    folder.mkdir(parents=True, exist_ok=True)
    for kind in positions.kinds(object):
        torch.manual_seed(0)
        arch = dict(pe_type=kind.name, with_cls_token=False, out_type='featmap')
        model = VisionTransformer(ARCH, 16 * SIDE, **arch).eval()
        encoding = positions.position_parameters(model)
        for path, parameter in model.named_parameters():
            if path in encoding:  # tables that start as zeros would show nothing
                nn.init.trunc_normal_(parameter)
        draw = next(draw for base, draw in DRAWN.items() if isinstance(kind, base))
        with torch.no_grad():
            title, maps = draw(model)
        file = folder / f'{kind.name}.png'
        _draw(maps, title).savefig(file)
        summary = type(kind).__doc__.partition('\n')[0]
        alt = f'{kind.name}: {title[0].lower()}{title[1:]}, three maps of {SIDE} x {SIDE} patches: {"; ".join(maps)}'
        yield kind.name, kind.acts, summary, alt, file


def _absolute(model: VisionTransformer) -> tuple[str, dict[str, Tensor]]:
    table = nn.functional.normalize(model.pos_embed[0, -SIDE * SIDE :], dim=1)
    return 'Cosine similarity of the PE', {place: _row(table @ table.T, cell) for place, cell in PLACES.items()}


def _inside(model: VisionTransformer) -> tuple[str, dict[str, Tensor]]:
    """Let every query and key be the same vector: what is left of the logits is the encoding."""
    attn = model.all_layers[0].attention
    number = SIDE * SIDE + model.num_prefix
    q = torch.randn(attn.head_dims).expand(1, attn.num_heads, number, -1)
    tokens = torch.randn(model.embed_dims).expand(1, number, -1)
    encoding = attn.encodings[0]
    turned, other = encoding.rotate(attn, q, q, GRID)
    change = (turned @ other.mT - q @ q.mT) / attn.head_dims**0.5
    term = encoding.logits(attn, q, q, GRID, *((tokens,) if encoding.reads_tokens else ()))
    added = (change if term is None else change + term)[0, 0, model.num_prefix :, model.num_prefix :]
    return 'Added to the logits of a query', {place: _row(added, cell) for place, cell in PLACES.items()}


def _between(model: VisionTransformer) -> tuple[str, dict[str, Tensor]]:
    layer = model.all_layers[0]
    encoding = model.position.build_between()[0]
    out = encoding.apply(layer, torch.ones(1, SIDE * SIDE, model.embed_dims), GRID)[0] - 1
    return 'Added to equal tokens', {f'channel {c}': out[:, c].reshape(GRID) for c in range(3)}


def _row(matrix: Tensor, cell: tuple[int, int]) -> Tensor:
    return matrix[cell[0] * SIDE + cell[1]].reshape(GRID)


DRAWN = {
    positions.AbsolutePosition: _absolute,
    positions.AttentionPosition: _inside,
    positions.LayerPosition: _between,
}


def _draw(maps: dict[str, Tensor], title: str) -> Figure:
    figure = Figure((7.2, 2.6), dpi=100, layout='constrained')
    limit = max(float(values.abs().max()) for values in maps.values())
    for ax, (place, values) in zip(figure.subplots(1, len(maps)), maps.items()):
        image = ax.imshow(np.asarray(values), cmap='RdBu_r', vmin=-limit, vmax=limit)
        ax.set(title=place, xticks=(), yticks=())
        if place in PLACES:
            ax.plot(*PLACES[place][::-1], 'ko', markersize=5, markeredgecolor='w')
    figure.colorbar(image, ax=figure.axes, shrink=0.8)
    figure.suptitle(title, fontsize=11)
    return figure


HALVES = {'laboratory': '#dceafa', 'contract': '#d9f0d3', 'papers': '#ffe9c7', 'shared': '#f3f6fa'}
"""The colours of the halves, of what joins them, and of what is below and above both."""


def draw_floors(file: Path) -> list[str]:
    """Draw the folders as floors, with the imports between them; return the floors from the top down."""
    graph = import_graph.read(import_graph.ROOT / 'mmlape')
    folders = {name: _folder(name) for name in graph}
    counts = Counter(
        (folders[name], folders[other])
        for name, imported in graph.items()
        for other in imported
        if folders[name] != folders[other]
    )
    places = {
        folder: (_column(floor, number), level)
        for level, floor in enumerate(_floors())
        for number, folder in enumerate(floor)
    }
    figure = Figure((7.2, 9.2), dpi=100, layout='constrained')
    ax = figure.subplots()
    sizes, boxes = Counter(folders.values()), {}
    for folder, place in places.items():
        label = f'{folder}\n{sizes[folder]} module{"s" * (sizes[folder] > 1)}'
        style = dict(boxstyle='round,pad=0.45', facecolor=HALVES[_half(folder)], edgecolor='#28435f')
        text = ax.annotate(label, place, ha='center', va='center', fontsize=9, bbox=style, zorder=3)
        boxes[folder] = text.get_bbox_patch()
    for (upper, lower), count in counts.items():
        if 'foundations' not in (upper, lower):  # which everything imports
            bend = 0.18 * (places[upper][1] - places[lower][1] > 1)  # around the boxes between
            arrow = dict(
                arrowstyle='-|>', color='#5b7fa6', alpha=0.6, linewidth=0.4 + 0.3 * count**0.5,
                patchA=boxes[upper], patchB=boxes[lower], shrinkA=0, shrinkB=1, connectionstyle=f'arc3,rad={bend}',
            )  # fmt: skip
            ax.annotate('', places[lower], places[upper], arrowprops=arrow, zorder=2)
    ax.set(xlim=(0, 1), ylim=(-0.6, len(_floors()) - 0.4))
    ax.axis('off')
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file)
    return [', '.join(floor) for floor in reversed(_floors())]


def _column(floor: list[str], number: int) -> float:
    """Return where a folder stands: the papers on the left, the laboratory on the right, else across."""
    left, right = {'papers': (0.08, 0.5), 'laboratory': (0.5, 0.92)}.get(_half(floor[0]), (0.0, 1.0))
    return left + (right - left) * (number + 1) / (len(floor) + 1)


def _half(folder: str) -> str:
    if folder.startswith('lab/'):
        return 'laboratory'
    if folder in ('foundations', 'files', 'console', 'openmmlab', 'commands'):
        return 'shared'
    return 'contract' if folder in ('contract', 'extension') else 'papers'


def _floors() -> list[list[str]]:
    """Return the folders from the bottom up; single modules are the foundations, but for the contract."""
    package = import_graph.ROOT / 'mmlape'
    floors = [['foundations']]
    for layer in import_graph.LAYERS:
        if layer == ('lab',):
            floors.append(['contract'])
            inside = import_graph.INSIDE['lab']
            floors += [[f'lab/{part}' for part in row if (package / 'lab' / part).is_dir()] for row in inside]
        elif layer == import_graph.OF_FILES:
            floors.append(['files'])
        else:
            floors.append([part for part in layer if (package / part).is_dir()])
    return [floor for floor in floors if floor]


def _folder(name: str) -> str:
    """Return the folder of a module, or 'foundations'; the command line is of the commands."""
    parts = name.split('.')[1:]
    known = {folder for floor in _floors() for folder in floor}
    if parts and parts[0] in ('cli', '__main__'):
        return 'commands'
    if parts == ['lab', 'extension']:
        return 'contract'
    if '.'.join(parts) in import_graph.OF_FILES:
        return 'files'
    folder = '/'.join(parts[:2]) if parts and parts[0] == 'lab' else ''.join(parts[:1])
    return folder if folder in known else 'foundations'


def draw_objects(folder: Path) -> Iterator[tuple[str, Path]]:
    """Draw scenes of objects where their stamps are installed; yield what an image shows, and its file."""
    if not Path(objects.STAMPS).is_dir():
        return
    folder.mkdir(parents=True, exist_ok=True)
    found = objects.find_stamps(objects.STAMPS)
    rows = {
        'Training scenes': ('train', [256] * 4),
        'Validation scenes': ('val', [256] * 4),
        'Validation scenes on three canvases': ('val', [192, 256, 512]),
    }
    for number, (title, (split, sides)) in enumerate(rows.items()):
        rng = np.random.default_rng(0)
        stamps, photographs = objects.sample_stamps(found, split, rng), objects.read_photographs(split)
        row = np.full((max(sides), sum(sides) + 8 * (len(sides) - 1), 3), 255, np.uint8)
        shown, left = [], 0
        for side in sides:
            options = objects.ObjectOptions(size=(side, side))
            image, things, *_ = objects.compose(stamps, photographs, options, rng)
            row[:side, left : left + side], left = image, left + side + 8
            names = ', '.join(objects.CLASSES[thing.label] for thing in things)
            shown.append(f'{side} x {side} pixels with {names}')
        file = folder / f'objects-{number}.png'
        cv2.imwrite(str(file), row)
        yield f'{title}: {"; ".join(shown)}', file
