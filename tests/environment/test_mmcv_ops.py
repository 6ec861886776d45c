"""mmcv's ops on torchvision's kernels: the compiled ones' golden data, and processes without compiled ops."""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from properties import examples

from mmlape.cli import main
from mmlape.openmmlab import mmcv_ext
from mmlape.openmmlab import mmcv_ops as ops

GOLDEN = Path(__file__).parents[1] / 'golden' / 'ops' / 'mmcv_ops.npz'
MODULES = [mmcv_ext]
if (found := ops.installed_ops()) and found.suffix != '.py':
    MODULES.append(importlib.import_module('mmcv._ext'))


def cases(op: str) -> list:
    """The golden cases of an op, by name."""
    data = dict(np.load(GOLDEN))
    names = dict.fromkeys(name.partition('/')[0] for name in data if name.startswith(f'{op}-'))
    return [
        pytest.param(
            *(int(part) if part.isdigit() else part for part in name.split('-')[1:]),
            {
                key.partition('/')[2]: torch.from_numpy(value)
                for key, value in data.items()
                if key.startswith(name + '/')
            },
            id=name,
        )
        for name in names
    ]


@pytest.fixture(params=MODULES, ids=lambda module: 'ours' if module is mmcv_ext else 'compiled')
def ext(request):
    return request.param


@pytest.mark.parametrize(('kind', 'scores', 'offset', 'case'), cases('nms'))
def test_nms_keeps_the_same_boxes_in_the_same_order(ext, kind, scores, offset, case):
    kept = ext.nms(case['boxes'], case['scores'], iou_threshold=0.5, offset=offset)
    assert kept.tolist() == case['kept'].tolist()
    assert len(kept) < 60


@pytest.mark.parametrize(('kind', 'case'), cases('nms_match'))
def test_nms_match_groups_the_same_boxes(ext, kind, case):
    groups = ext.nms_match(case['dets'], iou_threshold=0.4)
    assert [int(index) for group in groups for index in group] == case['groups'].tolist()
    assert [len(group) for group in groups] == case['lengths'].tolist()


@pytest.mark.parametrize(('method', 'offset', 'case'), cases('softnms'))
def test_soft_nms_gives_the_same_scores(ext, method, offset, case):
    dets = torch.zeros(40, 5)
    options = dict(iou_threshold=0.3, sigma=0.5, min_score=0.05, method=method, offset=offset)
    kept = ext.softnms(case['boxes'], case['scores'], dets, **options)
    assert kept.tolist() == case['kept'].tolist()
    torch.testing.assert_close(dets[: len(kept)], case['dets'], atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize(('kind', 'ratio', 'aligned', 'dtype', 'case'), cases('roi_align'))
def test_roi_align_gives_the_same_features_and_gradients(ext, kind, ratio, aligned, dtype, case):
    out, back, none = torch.zeros_like(case['out']), torch.zeros_like(case['maps']), case['maps'].new_zeros(0)
    options = dict(aligned_height=5, aligned_width=4, spatial_scale=0.25, sampling_ratio=ratio, pool_mode=1)
    ext.roi_align_forward(case['maps'], case['rois'], out, none, none, **options, aligned=bool(aligned))
    ext.roi_align_backward(case['grad'], case['rois'], none, none, back, **options, aligned=bool(aligned))
    tolerance = dict(float16=2e-3, float32=1e-6, float64=1e-12)[dtype]  # another build may sum in another order
    torch.testing.assert_close(out, case['out'], atol=tolerance, rtol=tolerance)
    torch.testing.assert_close(back, case['back'], atol=tolerance, rtol=tolerance)
    assert case['out'].any() == (kind == 'usual')


# what the compiled ops cannot do on the CPU


@examples(max_examples=40)
@given(
    seed=st.integers(0, 2**32 - 1), count=st.integers(0, 300), offset=st.sampled_from((0, 1)),
    dtype=st.sampled_from((torch.float16, torch.bfloat16, torch.float32, torch.float64)),
    threshold=st.sampled_from((0.25, 0.5, 0.75)),
)  # fmt: skip
def test_nms_keeps_the_best_of_what_overlaps_in_every_precision(seed, count, offset, dtype, threshold):
    """Written out over whole numbers, which 16 bits hold; more boxes than bfloat16 counts, and equal scores."""
    random = np.random.default_rng(seed)
    corners, sides = random.integers(0, 60, (count, 2)), random.integers(0, 40, (count, 2))
    boxes = np.concatenate([corners, corners + sides], 1)
    boxes += 2**30 * (dtype is torch.float64)  # where float32 has no whole numbers any more
    scores = torch.from_numpy(random.integers(0, 99, count) / 128).to(dtype)
    ends, kept = boxes[:, 2:] + offset, []
    areas = (ends - boxes[:, :2]).prod(1)
    for place in scores.sort(0, descending=True).indices.tolist():
        shared = (np.minimum(ends[kept], ends[place]) - np.maximum(boxes[kept, :2], boxes[place, :2])).clip(0).prod(1)
        if not (shared > threshold * (areas[kept] + areas[place] - shared)).any():
            kept.append(place)
    found = mmcv_ext.nms(torch.from_numpy(boxes).to(dtype), scores, threshold, offset)
    assert found.dtype == torch.long and found.tolist() == kept


def test_no_boxes():
    assert mmcv_ext.nms_match(torch.zeros(0, 5), 0.5) == []
    assert mmcv_ext.softnms(torch.zeros(0, 4), torch.zeros(0), torch.zeros(0, 5), 0.5, 0.5, 0.1, 1, 0).shape == (0,)
    out, maps, none = torch.zeros(0, 2, 3, 3), torch.rand(1, 2, 8, 8), torch.zeros(0)
    mmcv_ext.roi_align_forward(maps, torch.zeros(0, 5), out, none, none, 3, 3, 1.0, 0, 1, True)
    back = torch.ones_like(maps)
    mmcv_ext.roi_align_backward(out, torch.zeros(0, 5), none, none, back, 3, 3, 1.0, 0, 1, True)
    assert not back.any()


def test_soft_nms_of_boxes_without_area_has_no_nan():
    boxes = torch.tensor([[5.0, 5, 5, 5], [5, 5, 5, 5], [0, 0, 9, 9]])
    dets = torch.zeros(3, 5)
    assert mmcv_ext.softnms(boxes, torch.tensor([0.9, 0.8, 0.7]), dets, 0.5, 0.5, 0.1, 2, 0).tolist() == [0, 1, 2]
    assert dets[:, 4].tolist() == pytest.approx([0.9, 0.8, 0.7])


@pytest.mark.parametrize('weighted', [False, True])
def test_focal_loss_is_mmdets_own_without_ops(weighted):
    """A target of C is the background; against MMDetection's formula in Python."""
    from mmdet.models.losses.focal_loss import py_sigmoid_focal_loss

    logits = torch.randn(9, 4, dtype=torch.float64, requires_grad=True)
    target, weight = torch.arange(9) % (4 if weighted else 5), torch.rand(4, dtype=torch.float64)
    truth = torch.nn.functional.one_hot(target, 5)[:, :4]
    expected = py_sigmoid_focal_loss(logits, truth, gamma=1.5, alpha=0.3, reduction='none')
    expected = expected * weight[target][:, None] if weighted else expected
    (grad,) = torch.autograd.grad(expected.sum(), logits)
    given = weight if weighted else weight.new_zeros(0)
    out, back = torch.zeros_like(grad), torch.zeros_like(grad)
    mmcv_ext.sigmoid_focal_loss_forward(logits.detach(), target, given, out, gamma=1.5, alpha=0.3)
    mmcv_ext.sigmoid_focal_loss_backward(logits.detach(), target, given, back, gamma=1.5, alpha=0.3)
    torch.testing.assert_close(out, expected.detach(), atol=1e-12, rtol=1e-12)
    torch.testing.assert_close(back, grad, atol=1e-12, rtol=1e-12)


def test_deformable_attention_has_mmcvs_gradients():
    """Through mmcv's autograd function, which calls the module, against mmcv's formula in PyTorch."""
    from mmcv.ops import multi_scale_deform_attn as peer

    shapes = torch.tensor([[6, 4], [3, 2]])
    starts = torch.tensor([0, 24])
    inputs = [torch.rand(2, 30, 3, 5), torch.rand(2, 7, 3, 2, 4, 2), torch.rand(2, 7, 3, 2, 4)]
    inputs = [value.double().requires_grad_() for value in inputs]
    expected = peer.multi_scale_deformable_attn_pytorch(inputs[0], shapes, *inputs[1:])
    grad = torch.rand_like(expected)
    wanted = torch.autograd.grad(expected, inputs, grad)
    value, locations, weights = (value.detach() for value in inputs)
    out = mmcv_ext.ms_deform_attn_forward(value, shapes, starts, locations, weights, im2col_step=2)
    torch.testing.assert_close(out, expected.detach())
    found = [torch.zeros_like(value) for value in inputs]
    mmcv_ext.ms_deform_attn_backward(value, shapes, starts, locations, weights, grad, *found, im2col_step=2)
    for ours, theirs in zip(found, wanted):
        torch.testing.assert_close(ours, theirs)


# where the module comes from


@pytest.fixture
def plain(tmp_path):
    """Python with an mmcv without compiled ops before the real one."""
    folder = ops.mmcv_folder()
    copy = tmp_path / 'mmcv'
    copy.mkdir()
    for path in folder.iterdir():
        if not path.name.startswith('_ext.'):
            (copy / path.name).symlink_to(path)

    def run(code: str) -> str:
        done = subprocess.run(
            [sys.executable, '-c', code],
            text=True,
            capture_output=True,
            env={**os.environ, 'OMP_NUM_THREADS': '1', 'PYTHONPATH': f'{tmp_path}:{Path(__file__).parents[2]}'},
        )
        return done.stdout + done.stderr

    run.folder = copy
    return run


NMS = (
    'from mmcv.ops import batched_nms; import torch\n'
    'b = torch.tensor([[0., 0, 8, 8], [0, 0, 8, 7], [20, 20, 24, 24]])\n'
    'print(batched_nms(b, torch.tensor([.5, .7, .2]), torch.zeros(3).long(), dict(type="nms", iou_threshold=.5))[1])\n'
)


@pytest.mark.parametrize('other', ['timm', pytest.param('torch', marks=pytest.mark.release)])
def test_who_needs_ops_has_them_and_importing_mmlape_touches_no_mmcv(plain, other):
    """In whatever order. Without the registry there are none: the next test begins and ends so."""
    touched = '{name.partition(".")[0] for name in sys.modules} & {"mmcv", "mmengine"}'
    first = f'import mmlape, {other}, sys; print({touched})\n'
    found = plain(f'{first}import mmlape.registry\n{NMS}import mmcv._ext as e; print(e.__file__)')
    first, *_, last = found.strip().splitlines()
    assert first == 'set()', found
    assert 'tensor([1, 2])' in found and last.endswith('mmcv_ext.py'), found


@pytest.mark.release
def test_install_ops_serves_processes_that_do_not_import_mmlape(plain, monkeypatch):
    monkeypatch.setattr(ops, 'mmcv_folder', lambda: plain.folder)
    assert ops.installed_ops() is None and "No module named 'mmcv._ext'" in plain(NMS)
    assert main(['install-ops']) == 0 and ops.installed_ops() == plain.folder / '_ext.py'
    assert 'tensor([1, 2])' in plain(NMS)


@pytest.mark.release
def test_a_compiled_extension_goes_first(plain, monkeypatch, capsys):
    monkeypatch.setattr(ops, 'mmcv_folder', lambda: plain.folder)
    (plain.folder / f'_ext{ops.EXTENSION_SUFFIXES[0]}').write_bytes(b'not one')
    assert main(['install-ops']) == 0 and 'nothing to do' in capsys.readouterr().out
    assert not (plain.folder / '_ext.py').exists()
    assert 'ImportError' in plain('import mmlape.registry\n' + NMS), 'a broken one is not passed over'
