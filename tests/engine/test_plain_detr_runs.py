"""Plain-DETR's mini config over a small frozen ViT: trained, resumed, tested, predicted with, and exported."""

import json

import onnx
import pytest
import torch
from tiny import ROOT

from mmlape.cli import main
from mmlape.lab.config.config_file import load_config
from mmlape.lab.export.graphs import Graph
from mmlape.lab.inference.evaluator import test as evaluate

CONFIG = ROOT / 'configs' / 'plain_detr' / 'plain-detr_deit-mini_1xb4-400i_mini-coco.py'
pytestmark = pytest.mark.release
OPTIONS = (
    'train_cfg.max_iters=2', 'train_cfg.val_interval=2', 'param_scheduler.0.end=1', 'param_scheduler.1.begin=1',
    'default_hooks.checkpoint.interval=1', 'default_hooks.checkpoint.max_keep_ckpts=2',
    'train_dataloader.num_workers=0', 'train_dataloader.persistent_workers=False', 'val_dataloader.num_workers=0',
    'val_dataloader.persistent_workers=False', 'test_dataloader.num_workers=0',
    'test_dataloader.persistent_workers=False', 'model.windows=2', 'model.bbox_head.with_cp=True',
    'model.test_cfg.max_per_img=8',
)  # fmt: skip


def call(*words):
    assert main([str(word) for word in words]) == 0


@pytest.fixture(scope='module')
def trained(pristine, tmp_path_factory):
    folder = tmp_path_factory.mktemp('plain_detr')
    cfg = load_config(str(CONFIG), [f'data_root={pristine}/coco/', *OPTIONS])
    cfg.model.backbone = dict(type='mmlape.TimmViT', model_name='test_vit', frozen=True)
    cfg.dump(folder / 'config.py')
    call('train', folder / 'config.py', '--work-dir', folder / 'run', '--seed', '1')
    return folder / 'run'


def test_a_graph_of_any_batch_has_the_models_objects(trained, pristine, tmp_path):
    """And its metrics; without sampling or suppression, which plugins have."""
    call('export-onnx', trained, '--batch', 'dynamic', '--out', tmp_path / 'model.onnx')
    operators = {node.op_type for node in onnx.load(tmp_path / 'model.onnx').graph.node}
    assert not {'GridSample', 'NonMaxSuppression', 'RoiAlign'} & operators
    graph = Graph(tmp_path / 'model.onnx')
    assert graph.outputs == ('boxes', 'scores', 'labels') and graph.batch is None
    images = torch.rand(3, 3, 128, 128) * 255
    for many, alone in zip(graph(images), zip(*map(graph, images.split(1)))):
        torch.testing.assert_close(many, torch.cat(alone), atol=1e-3, rtol=1e-4)
    cfg = load_config(str(trained.parent / 'config.py'))
    results = [
        evaluate(cfg, path, tmp_path / path.suffix[1:], save_pred=True, show=False)
        for path in (trained / 'iter_2.pth', tmp_path / 'model.onnx')
    ]
    assert results[0]['metrics'] == pytest.approx(results[1]['metrics'], abs=1e-3, nan_ok=True)
    ours, theirs = (
        json.loads((tmp_path / name / 'predictions' / 'predictions.json').read_text()) for name in ('pth', 'onnx')
    )
    assert len(ours) == len(theirs) == 3 * 8
    for one, other in zip(ours, theirs):
        assert one['bbox'] == pytest.approx(other['bbox'], abs=1e-2) and one['category_id'] == other['category_id']
    image = sorted((pristine / 'coco' / 'val2017').glob('*.jpg'))[0]
    call('predict', trained, image, '--out', tmp_path / 'out')
    assert [path for path in (tmp_path / 'out').rglob('*') if path.stem.startswith(image.stem)]
