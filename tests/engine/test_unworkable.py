"""A setting that does nothing, or something else than it says, or names no file, is an error before the first step."""

import re
import shutil

import numpy as np
import pytest
import tiny
from config_helpers import CONFIGS, load
from each import each
from mmengine.config import Config
from mmengine.evaluator import BaseMetric
from mmengine.registry import METRICS
from told import assert_told

from mmlape.cli import main
from mmlape.errors import ConfigError, MissingCheckpointError
from mmlape.lab.analysis.cost import input_shape
from mmlape.lab.config.config_file import load_config
from mmlape.lab.config.known_keys import check_keys, untyped_keys
from mmlape.lab.config.schedule import check_schedule, check_units
from mmlape.lab.inference.images import Preparation
from mmlape.lab.inference.trained_graph import image_size
from mmlape.lab.recipe import Recipe
from mmlape.lab.runs.identity import checkpoint_keys, is_missing
from mmlape.lab.training.plan import missing_weights
from mmlape.lab.training.trainer import train
from mmlape.openmmlab.mim import resolve_path

EPOCHS = tiny.EPOCHS + 'train_cfg.update(max_epochs=12)\nparam_scheduler = [{}]\n'
STEPS = "dict(type='MultiStepLR', milestones=[8, 11]{})"
BEST = 'default_hooks["checkpoint"].update({})'
STOP = "custom_hooks = [dict(type='EarlyStoppingHook', monitor={!r}, rule='greater')]"

OWN = 'val_evaluator = [val_evaluator, dict(type="OwnMetric")]\n'
SMOKE = ('a scheduler in epochs', 'no model')

# what is added to a valid configuration, and what the error says: of training, its trial, and a study
TRAINING = {
    'shards': "distributed = 'fsdp'",
    'a scheduler in epochs': f'param_scheduler = [{STEPS.format("")}]',
    'a scheduler behind the run': 'param_scheduler[0].update(begin=6)',
    'a scheduler that ends before it begins': 'param_scheduler[0].update(begin=3, end=2)',
    'checkpoints by epochs': BEST.format('by_epoch=True'),
    'no checkpoint hook': 'default_hooks.pop("checkpoint")',
    'workers below 0': 'val_dataloader["num_workers"] = -1',
    'validations every 0': 'train_cfg["val_interval"] = 0',
    'no model': 'model = None',
    'epochs without end': EPOCHS.format('') + 'train_dataloader["sampler"] = dict(type="InfiniteSampler")',
    'an optimiser': 'optim_wrapper["optimizer"]["type"] = "AdmaW"',
    'weights of other classes': 'model["decode_head"]["loss_decode"]["class_weight"] = [1, 2]',
    'a key of the runner': 'optim_wraper = dict(optimizer=dict(lr=1.0))',
    'an argument of a backbone': "model['backbone'].update(patch_nrm='dual')",
    'a transform': 'train_pipeline[3].update(type="RandomFilp")',
    'an argument of a hook': "default_hooks['checkpoint'].update(max_keep_ckpt=1)",
    'a best metric of other letters': BEST.format('save_best="mIou"'),
    'a best one without validations': 'val_dataloader = val_cfg = val_evaluator = None',
    'an early stop by no metric': STOP.format('accuracy/top1'),
    'a plateau of what is not measured': 'param_scheduler = [dict(type="ReduceOnPlateauLR", by_epoch=False)]',
    'a plateau from above': 'param_scheduler = [dict(type="ReduceOnPlateauLR", monitor="mIoU", by_epoch=False)]',
    'a cycle that is over': 'param_scheduler = [dict(type="OneCycleLR", eta_max=0.1, total_steps=4, by_epoch=False)]',
    'paths that are always dropped': 'model["backbone"]["drop_path_rate"] = 1.5',
    'a batch of 0': 'train_dataloader["batch_size"] = 0',
    'a rate as text': 'optim_wrapper["optimizer"]["lr"] = "abc"',
    'data that fill no batch': EPOCHS.format('')
    + 'train_dataloader.update(batch_size=5, drop_last=True)\nauto_scale_lr = None',
    'checkpoints elsewhere': BEST.format('out_dir="x"'),
    'features of what is trained': 'cache_features = dict(views=1)',
    'features of no view': 'cache_features = dict(views=0)',
    'features of another type': 'cache_features = dict(views=1, dtype="int8")',
    'a misspelt option of features': 'cache_features = dict(view=3)',
}
# nothing is wrong with these
ALLOWED = {
    'epochs': EPOCHS.format(STEPS.format('')),
    'a warm-up in iterations of epochs': EPOCHS.format(
        "dict(type='LinearLR', start_factor=0.1, by_epoch=False, end=500)"
    ),
    'epochs that become iterations': (
        "param_scheduler = [dict(type='PolyLR', convert_to_iter_based=True, by_epoch=True, end=12)]"
    ),
    'a loop without a type': 'train_cfg = dict(max_iters=6)',
    'a loop by its flag': 'train_cfg = dict(by_epoch=False, max_iters=6)',
    'checkpoints by iterations, of epochs': EPOCHS.format(STEPS.format('')) + BEST.format('by_epoch=False'),
    'a validation at the end alone': 'train_cfg["val_interval"] = 1000',
    'the first metric': BEST.format('save_best="auto"'),
    'metrics with a prefix': 'val_evaluator.update(prefix="seg")\n' + BEST.format('save_best="seg/mIoU"'),
    "a metric of the user's": OWN + BEST.format('save_best="own/quality", rule="less"'),
    'no validation': BEST.format('save_best=None') + '\nval_dataloader = val_cfg = val_evaluator = None',
    'a plateau': 'param_scheduler = [dict(type="ReduceOnPlateauLR", monitor="mIoU", rule="greater")]',
}


@METRICS.register_module()
class OwnMetric(BaseMetric):
    default_prefix = 'own'

    def process(self, data_batch, data_samples) -> None:
        self.results.append(1)

    def compute_metrics(self, results) -> dict:
        return dict(quality=1.0)


@pytest.fixture(scope='module')
def data(tmp_path_factory):
    return tiny.write_data(tmp_path_factory.mktemp('effects') / 'data', train=4, val=1)


def error_of(capfd) -> str:
    """Return the one line that a command ends with."""
    printed = capfd.readouterr()
    [error] = [line for line in printed.err.splitlines() if line.startswith('mmlape: error:')]
    assert 'Traceback' not in printed.err and 'Iter(train)' not in printed.out
    return error


def test_what_has_no_effect_is_an_error_before_the_first_step(data, tmp_path, capfd):
    told = []
    for name, extra in each(TRAINING.items()):
        train = [
            'train',
            str(tiny.write_config(tmp_path, data, extra)),
            '--work-dir',
            str(tmp_path / 'run'),
            '--seed',
            '1',
        ]
        assert main(train) == 1
        told.append(f'{name}: {(error := error_of(capfd))}')
        if name in SMOKE:
            assert main([*train, '--smoke']) == 1 and error_of(capfd) == error
        assert not list(tmp_path.glob('run/*.pth'))
    assert_told('unworkable', '\n'.join(told), folder=tmp_path, data=data)


def test_a_misspelt_key_of_a_dict_without_a_type_is_an_error_of_the_file():
    for place, names in each(untyped_keys().items()):
        for name in sorted(names)[:3]:
            cfg = Config(dict())
            cfg.merge_from_dict({f'{place}.{name}': 1})
            check_keys(cfg)
            cfg.merge_from_dict({f'{place}.{name}x': 1})
            with pytest.raises(ConfigError, match=rf"'{place}' has no '{name}x': did you mean .*\b{name}\b"):
                check_keys(cfg)


def test_what_only_a_validation_tells_is_an_error_of_the_trial(data, tmp_path, capfd):
    """The names of metrics, a user's own too; MMEngine ends in a KeyError, or never stops."""
    for extra, expected in each((
        (OWN + BEST.format('save_best="own/quantity", rule="less"'), 'own/quantity: .* did you mean own/quality'),
        (OWN + STOP.format('own/quantity'), 'own/quantity: .* did you mean own/quality'),
    )):  # fmt: skip
        config = str(tiny.write_config(tmp_path, data, extra))
        assert main(['train', config, '--work-dir', str(tmp_path / 'run'), '--smoke', '--seed', '1']) == 1
        [error] = [line for line in capfd.readouterr().err.splitlines() if line.startswith('mmlape: error:')]
        assert re.search(expected, error), error


FILES = {
    'a base that is itself': '_base_ = "own.py"',
    'bases in a circle': '_base_ = ["tiny.py", "round.py"]',
    'a base that is missing': '_base_ = "./nowhere.py"',
}
OPTIONS = {
    'a list': 'train_pipeline.2.crop_size=(16,16)',
    'a tuple': 'classes=("a",)',
    'a dict': 'norm_cfg.type=BN',
    'a part of data': 'dataset.img_suffix=.jpg',
}


def test_what_nothing_reads_is_an_error_of_every_command(data, tmp_path, capfd):
    tiny.write_config(tmp_path, data)
    (tmp_path / 'round.py').write_text('_base_ = "own.py"')
    own, plain = tmp_path / 'own.py', tmp_path / 'tiny.py'
    cases = {name: (text, [str(own)]) for name, text in FILES.items()}
    cases |= {name: ('', [str(plain), '--cfg-options', option]) for name, option in OPTIONS.items()}
    told = []
    for name, (text, words) in each(cases.items()):
        own.write_text(text)
        errors = {main([command, *words]) and error_of(capfd) for command in ('train', 'print-config', 'check-data')}
        told.append(f'{name}: {" / ".join(sorted(errors))}')
    assert_told('unread', '\n'.join(told), folder=tmp_path)
    assert load_config(plain, ['own_keys=["classes"]', 'classes=("a",)']).classes == ('a',)
    # an export reads this one
    tiny.write_config(tmp_path, data, 'crop_size = (32, 32)')
    both = ['crop_size=(16,16)', 'train_dataloader.dataset.pipeline.2.crop_size=(16,16)']
    assert load_config(plain, both).crop_size == (16, 16)
    with pytest.raises(ConfigError, match=r'change train_dataloader\.dataset\.pipeline\.2\.crop_size='):
        load_config(plain, ['crop_size=(16,16)'])


def test_a_data_root_in_a_file_is_one_on_the_command_line(data, tmp_path):
    """Paths, classes and heads follow it, through another file of the user's, too; other paths stay."""
    plain = tiny.write_config(tmp_path, data)
    own_root = tmp_path / 'other'
    shutil.copytree(data, own_root)
    (data / 'classes.txt').write_text('left\nright\nbelow\n')
    (own_root / 'classes.txt').write_text('left\nright\nbelow\nabove\n')
    expected = load_config(plain, [f'data_root={own_root}'])
    assert expected.model.decode_head.num_classes == 4
    (tmp_path / 'own.py').write_text(f'_base_ = "tiny.py"\ndata_root = {str(own_root)!r}\n')
    (tmp_path / 'more.py').write_text('_base_ = "own.py"\nmodel = dict(decode_head=dict(channels=16))\n')
    for name in each(('own', 'more')):
        cfg = load_config(tmp_path / f'{name}.py')
        for key in ('data_root', 'train_dataloader', 'val_dataloader', 'test_dataloader', 'model'):
            assert cfg[key] == expected[key], key
    again = load_config(tmp_path / 'own.py', [f'data_root={data}'])
    assert again.train_dataloader.dataset.data_root == str(data)
    assert again.model.decode_head.num_classes == 3


def test_nothing_else_is_an_error(data, tmp_path):
    for _, extra in each(ALLOWED.items()):
        cfg = load_config(tiny.write_config(tmp_path, data, extra))
        check_units(Recipe.of(cfg))
        check_schedule(Recipe.of(cfg))


def test_an_early_stop_by_ap_says_what_counts_as_better():
    """MMEngine's default of 0.1 is for percent: by it, AP never becomes better."""
    stop = dict(type='EarlyStoppingHook', monitor='coco/bbox_mAP', rule='greater', patience=3)
    for scope in each(('mmdet', 'mmlape')):
        coco = dict(type=f'{scope}.CocoMetric', metric='bbox')
        cfg = Config(dict(train_cfg=dict(max_epochs=12), val_evaluator=coco, custom_hooks=[dict(stop)]))
        with pytest.raises(ConfigError, match=r'min_delta is 0\.1 .* ten points of coco/bbox_mAP, .* 3 validations'):
            check_units(Recipe.of(cfg))
    cfg.custom_hooks[0].min_delta = 0.001
    check_units(Recipe.of(cfg))


def test_a_size_that_nothing_reads_and_a_pipeline_that_packs_nothing(data, tmp_path):
    cfg = load_config(tiny.write_config(tmp_path, data, 'crop_size = (64, 64)'))
    assert image_size(cfg) == input_shape(cfg) == (32, 32), 'what the preprocessor pads to, not an inherited variable'
    cfg.test_pipeline = cfg.test_dataloader.dataset.pipeline[:1]
    with pytest.raises(ConfigError, match='packs no inputs: end it with the Pack'):
        Preparation(cfg).of_array(np.zeros((32, 32, 3), np.uint8))


def test_every_file_of_our_configs_has_a_source():
    """The config that makes it, with a model of the same position encoding; or the page that says where it is."""
    made = set()
    for path in each(CONFIGS):
        for key, file in checkpoint_keys(load(path)):
            if file in made or not is_missing(file) or not file.startswith(('pretrained/', 'work_dirs/')):
                continue
            made.add(file)
            source = re.search('`mmlape train (mmlape::[^`]+)` makes it', missing_weights(key, file))
            if source is None:
                assert 'configs/running.md' in missing_weights(key, file) and '_lape' not in file, file
                continue
            backbone = load(resolve_path(source[1])).model.backbone
            assert ('lape' in file) == (backbone.get('pe_joining') == 'lape')
            assert ('dpn' in file) == (backbone.get('patch_norm') == 'dual')
    assert len(made) > 20
    assert not is_missing('hf-hub:timm/vit_base_patch16_224.mae')


def test_a_missing_file_leaves_no_record(tmp_path, capsys):
    data = tiny.write_data(tmp_path / 'data', train=2, val=1)
    file = 'work_dirs/deit-mini_1xb32-5e_mini-digits/epoch_5.pth'
    for key, extra in each(
        {
            'load_from': f'load_from = {file!r}\n',
            'model.backbone.init_cfg.checkpoint': f"model['backbone']['init_cfg'] = dict(type='Pretrained', "
            f'checkpoint={file!r})\n',
        }.items()
    ):
        config = tiny.write_config(tmp_path, data, extra)
        with pytest.raises(
            MissingCheckpointError, match=rf'{key}=.*`mmlape train mmlape::deit/deit-mini_.*` makes it'
        ):
            train(load_config(config), tmp_path / 'run', seed=1)
        assert not (tmp_path / 'run').exists()
        assert main(['train', str(config), '--work-dir', str(tmp_path / 'run'), '--seed', '1']) == 1
        assert f'give one by --cfg-options {key}=FILE' in capsys.readouterr().err
