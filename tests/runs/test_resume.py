"""A killed and resumed run is the uninterrupted one, in losses and weights; what is skipped is not loaded."""

import itertools

import pytest
import tiny
import torch
import trouble
from each import each
from mmengine.runner import Runner as MMRunner

from mmlape.checkpoint import read_checkpoint
from mmlape.cli import main
from mmlape.lab.training.seeding import Batches, SkippingBatchSampler, seeded_dataloader

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
    run(tmp_path / 'part', status=-9 if processes == 1 else 1, TROUBLE='kill:5:0')
    assert sorted(tiny.losses(tmp_path / 'part')) == [1, 2, 3, 4]
    printed = run(tmp_path / 'part', '--resume')
    assert 'resuming from' in printed and 'iter_3.pth' in printed
    whole = tiny.losses(tmp_path / 'whole')
    assert len(whole) == 6 and tiny.losses(tmp_path / 'part') == whole
    assert tiny.difference(tmp_path / 'part' / 'iter_6.pth', tmp_path / 'whole' / 'iter_6.pth') == 0


# a validation changes rates, counts and weights

WATCHING = (
    trouble.CONFIG
    + """
default_hooks['checkpoint'].update(save_best='mIoU', interval={step})
param_scheduler = dict(
    type='ReduceOnPlateauLR', monitor='mIoU', rule='greater', threshold=1000, patience=0, factor=0.5, eps=0.0
)
custom_hooks += [
    dict(type='Counting'), dict(type='EMAHook', momentum=0.3),
    dict(type='EarlyStoppingHook', monitor='mIoU', min_delta=1000, patience=3),
]
train_cfg['val_interval'] = {step}
train_cfg['{length}'] = 6 * {step}
"""
)
BY_ITERATION = """
default_hooks['checkpoint'].update(by_epoch=False, interval=2)
param_scheduler = [param_scheduler, dict(type='StepLR', step_size=1, gamma=0.9)]
"""
LOOPS = dict(iterations=('max_iters', 2, ''), epochs=('max_epochs', 1, tiny.EPOCHS))
LOOPS['iterations of epochs'] = (*LOOPS['epochs'], BY_ITERATION)
PLACES = dict(epochs=('before_val:4', 'after_val_epoch:4', 'kill:5:0', 'after_val:8'))
PLACES |= {'iterations': ('after_val_epoch:4', 'after_val:8'), 'iterations of epochs': ('before_val:4',)}
MORE = ('before_val:2', 'after_val_iter:4', 'after_val:4', 'kill:7:0', 'before_val:8', 'after_val_epoch:8')
CASES = [*PLACES.items(), *(pytest.param(loop, MORE, marks=pytest.mark.release) for loop in PLACES)]


@pytest.mark.parametrize(('loop', 'places'), CASES)
def test_a_kill_around_a_validation_changes_nothing(tmp_path, capfd, loop, places):
    """Each validation of two iterations or an epoch of two is of a checkpoint; the fourth one ends the run."""
    length, step, extra, *behind = LOOPS[loop]
    data = tiny.write_data(tmp_path / 'data', train=4, val=2, side=40)
    config = tiny.write_config(tmp_path, data, extra + WATCHING.format(length=length, step=step) + ''.join(behind))
    words = ('train', str(config), '--seed', '7', '--work-dir')
    assert main([*words, str(tmp_path / 'whole')]) == 0
    expected = outcome(tmp_path / 'whole')
    assert expected['stopped']['iter'] == 8 and len(expected['losses']) == 8
    epochs = [None] * 4 if loop == 'iterations' else [1, 2, 3, 4]
    assert [(one.get('epoch'), one['step']) for one in expected['evaluations']] == [*zip(epochs, (2, 4, 6, 8))]
    for place in each(places):
        folder = tmp_path / place.replace(':', '_')
        tiny.run(*tiny.MMLAPE, *words, folder, cwd=tmp_path, status=-9, TROUBLE=place)
        trained = len(tiny.losses(folder))
        capfd.readouterr()
        assert main([*words, str(folder), '--resume']) == 0
        assert ('evaluating now' in ''.join(capfd.readouterr())) == ('val' in place), place
        assert len(tiny.losses(folder)) == 8 >= trained
        assert not [*tiny.differences(expected, outcome(folder))], place


def outcome(work_dir):
    """All that a run has left, without times."""
    record = tiny.record(work_dir)
    found = {key: record[key] for key in ('state', 'reason', 'stopped', 'last', 'best', 'iter')}
    newest = max(work_dir.glob('*_[48].pth'), key=lambda path: path.stat().st_mtime)
    content = read_checkpoint(newest)
    parts = ('state_dict', 'optimizer', 'param_schedulers', 'early_stopping', 'ema_state_dict')
    found |= {key: content[key] for key in parts if key in content}
    found['best_score'] = content['message_hub']['runtime_info']['best_score']
    found['files'] = sorted(path.name for path in work_dir.glob('*.pth'))
    return found | dict(losses=tiny.losses(work_dir), evaluations=tiny.evaluations(work_dir))


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
