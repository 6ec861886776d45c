"""A killed and resumed run is the uninterrupted one, in losses and weights; what is skipped is not loaded."""

import itertools
import json

import pytest
import tiny
import torch
import trouble
from mmengine.runner import Runner as MMRunner

from mmlape.lab.engine.seeding import Batches, SkippingBatchSampler, seeded_dataloader

TOOLS = tiny.ROOT / 'tools'
# half of the images, the subset of which must be that of the uninterrupted run, too
OPTIONS = (
    'data_fraction=0.5', 'train_cfg.max_iters=6', 'train_cfg.val_interval=6', 'default_hooks.checkpoint.interval=3'
)  # fmt: skip

DETECTOR = """
_base_ = {base!r}
train_dataloader = dict(batch_size=2, num_workers=0, persistent_workers=False)
val_dataloader = dict(num_workers=0, persistent_workers=False)
model = dict(
    backbone=dict(
        arch=dict(_delete_=True, embed_dims=16, num_layers=4, num_heads=2, feedforward_channels=16),
        window_attn=[True, False] * 2, conv_inplane=4,
        deform_num_heads=2, drop_path_rate=0.2, init_cfg=None,
    ),
    neck=dict(in_channels=[16] * 4, out_channels=8),
    rpn_head=dict(in_channels=8, feat_channels=8),
    roi_head=dict(
        bbox_roi_extractor=dict(out_channels=8),
        bbox_head=dict(in_channels=8, fc_out_channels=8),
        mask_roi_extractor=dict(out_channels=8),
        mask_head=dict(in_channels=8, conv_out_channels=8),
    ),
    train_cfg=dict(rpn_proposal=dict(max_per_img=20), rcnn=dict(sampler=dict(num=8))),
    test_cfg=dict(rpn=dict(max_per_img=5)),
)
param_scheduler = [dict(type='PolyLR', by_epoch=False, begin=0)]
default_hooks = dict(logger=dict(interval=1), checkpoint=dict(save_best=None, save_last=False))
"""
MINI = 'mask_rcnn/mask-rcnn_deit-mini-adapter-lape_1xb4-200i_mini-coco.py'


@pytest.fixture(scope='module')
def configs(tmp_path_factory):
    """A segmentor on an endless stream, and a detector on epochs of batches by aspect ratio."""
    from mmlape.lab.datasets.mini.make import MiniOptions, make_mini_data

    folder = tmp_path_factory.mktemp('tiny')
    data = folder / 'mini'
    make_mini_data(data, MiniOptions(train=10, val=1, digits=0, size=(64, 64), digit_size=(20, 40)))
    detector = folder / 'detector.py'
    detector.write_text(DETECTOR.format(base=str(tiny.ROOT / 'configs' / MINI)) + trouble.CONFIG)
    segmentor = tiny.write_config(folder, tiny.write_data(folder / 'data'), trouble.CONFIG)
    return dict(segmentation=(segmentor, []), detection=(detector, [f'data_root={data}/coco']))


def losses(work_dir):
    """Step and loss of every iteration that was logged, a resumed run's over those that it repeats."""
    found = {}
    for path in sorted(work_dir.glob('*/vis_data/scalars.json')):
        for line in path.read_text().splitlines():
            entry = json.loads(line)
            if 'loss' in entry:
                found[entry['step']] = entry['loss']
    return found


@pytest.mark.parametrize(
    ('task', 'processes'),
    [
        ('segmentation', 2),
        *(
            pytest.param(*other, marks=pytest.mark.release)
            for other in (('segmentation', 1), ('detection', 1), ('detection', 2))
        ),
    ],
)
def test_a_killed_run_repeats_the_uninterrupted_one(configs, tmp_path, task, processes):
    config, options = configs[task]
    options = ('--cfg-options', *options, *OPTIONS, f'auto_scale_lr.base_batch_size={2 * processes}')
    tool = (TOOLS / 'train.py', config) if processes == 1 else (TOOLS / 'dist_train.sh', config, processes)

    def run(work_dir, *more, status=0, **variables):
        words = (*tool, '--work-dir', work_dir, '--seed', 7, *more, *options)
        return tiny.run(*words, cwd=config.parent, status=status, **variables)

    run(tmp_path / 'whole')
    run(tmp_path / 'part', status=-9 if processes == 1 else 137, TROUBLE='kill:5:0')
    assert sorted(losses(tmp_path / 'part')) == [1, 2, 3, 4]
    printed = run(tmp_path / 'part', '--resume')
    assert 'resuming from' in printed and 'iter_3.pth' in printed
    assert losses(tmp_path / 'part') == losses(tmp_path / 'whole') and len(losses(tmp_path / 'whole')) == 6
    assert tiny.difference(tmp_path / 'part' / 'iter_6.pth', tmp_path / 'whole' / 'iter_6.pth') == 0


# what is skipped is not loaded


class Numbers(torch.utils.data.Dataset):
    """Indices, some of which cannot be read."""

    def __init__(self, unreadable=()):
        self.unreadable = set(unreadable)

    def __len__(self):
        return 12

    def __getitem__(self, index):
        assert int(index) not in self.unreadable, f'sample {int(index)} was loaded'
        return int(index)


def loader(sampler, workers, unreadable=(), **more):
    cfg = dict(
        batch_size=2,
        num_workers=workers,
        sampler=sampler,
        dataset=dict(type=Numbers, unreadable=list(unreadable)),
        collate_fn=dict(type='default_collate'),
    )
    return MMRunner.build_dataloader(seeded_dataloader(dict(cfg, **more)), seed=5)


@pytest.mark.parametrize('workers', [0, 2])
@pytest.mark.parametrize('kind', ['InfiniteSampler', 'DefaultSampler'])
@pytest.mark.parametrize('count', [0, 4, 6, 9])
def test_skipped_samples_are_not_loaded(kind, workers, count):
    sampler = dict(type=kind, shuffle=True)
    stream = Batches(loader(sampler, 0))
    expected = [next(stream).tolist() for _ in range(18)]
    skipped = {index for batch in expected[count // 6 * 6 : count] for index in batch}
    later = Batches(loader(sampler, workers, skipped))
    later.skip_iter(count)
    left = 6 - count % 6  # the epoch's batches that have not been read
    ahead = left if not workers else max(left - 2 * workers, 1)  # workers prefetch from the epoch after it
    got = []
    for _ in range(ahead if skipped else left):
        got.append(next(later).tolist())
    assert got == expected[count : count + len(got)]


@pytest.mark.parametrize('workers', [0, 2])
def test_an_endless_stream_starts_anew_behind_a_pass_that_was_dropped(workers):
    """MMEngine 0.10.7 makes such a pass with each loop, and its sampler cannot skip."""
    data = loader(dict(type='InfiniteSampler', shuffle=True), workers, persistent_workers=workers > 0)
    expected = [batch.tolist() for batch in itertools.islice(data, 9)]
    assert len({*map(tuple, expected)}) > 6, 'shuffled'
    assert [batch.tolist() for batch in itertools.islice(data, 9)] == expected
    later = Batches(data)
    later.skip_iter(4)
    assert [next(later).tolist() for _ in range(5)] == expected[4:]


def test_a_stream_continues_over_epochs():
    stream = Batches(loader(dict(type='DefaultSampler', shuffle=True), 0))
    epochs = [[next(stream).tolist() for _ in range(6)] for _ in range(3)]
    assert [sorted(itertools.chain(*epoch)) for epoch in epochs] == [list(range(12))] * 3
    assert epochs[0] != epochs[1] != epochs[2]


@pytest.mark.parametrize(('more', 'sizes'), [({}, [5, 5, 2]), (dict(drop_last=True), [5, 5])])
def test_the_last_images_of_an_epoch_are_dropped_only_if_the_config_says_so(more, sizes):
    batches = loader(dict(type='DefaultSampler', shuffle=False), 0, batch_size=5, **more)
    assert [len(batch) for batch in batches] == sizes and len(batches) == len(sizes)


def test_an_epoch_is_entered_in_its_middle():
    whole = loader(dict(type='DefaultSampler', shuffle=True), 0)
    whole.batch_sampler.sampler.set_epoch(2)
    expected = [batch.tolist() for batch in whole]
    part = loader(dict(type='DefaultSampler', shuffle=True), 0, itertools.chain(*expected[:4]))
    assert isinstance(part.batch_sampler, SkippingBatchSampler) and len(part) == 6
    part.batch_sampler.skip(2 * 6 + 4)
    assert [batch.tolist() for batch in part] == expected[4:]
