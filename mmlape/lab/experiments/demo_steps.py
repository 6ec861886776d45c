"""The experiments of the demo."""

from dataclasses import dataclass

INTRODUCTION = (
    'Scenes of two to four scanned handwritten digits on tiles, on crops of two photographs; no '
    'scan of training appears in validation. A small DeiT is pretrained on crops of one digit with '
    'the default position embedding and with LaPE, and fine-tuned from there, with attention in '
    'windows as large as those crops. Untrained is the model that training starts with: a '
    'pretrained backbone under new heads. The models and the data are tiny and the seeds few: the '
    'numbers show that everything works and learns, not which position embedding is better.'
)
FIRST_SEED = 121


@dataclass(frozen=True)
class Step:
    """One experiment of the demo: an arm over its seeds."""

    name: str  # the arm's name in the report
    task: str  # 'classification' (pretraining), 'segmentation' or 'detection'
    config: str  # below ``configs``
    # seconds of one run on two cores, or twice as many on one: the weight in estimates of the time
    # left
    cost: float
    pretrained: str | None = None  # the step whose checkpoint it starts from
    options: tuple[str, ...] = ()  # changes of the config
    # whether it runs once for each seed of the demo; else for the first one
    over_seeds: bool = False


STEPS = (
    Step('DeiT, default PE', 'classification', 'deit/deit-mini_1xb32-5e_mini-digits.py', 38),
    Step('DeiT, LaPE', 'classification', 'deit/deit-mini-lape_1xb32-5e_mini-digits.py', 38),
    Step(
        'Mask R-CNN ViT-Adapter, LaPE',
        'detection',
        'mask_rcnn/mask-rcnn_deit-mini-adapter-lape_1xb4-200i_mini-coco.py',
        55,
        'DeiT, LaPE',
        options=('train_cfg.max_iters=150', 'train_cfg.val_interval=150'),
    ),
    Step(
        'UperNet ViT-Adapter, LaPE',
        'segmentation',
        'upernet/upernet_deit-mini-adapter-lape_1xb4-200i_mini-ade.py',
        45,
        'DeiT, LaPE',
        options=('train_cfg.val_interval=200',),
    ),
    Step(
        'Segmenter, default PE',
        'segmentation',
        'segmenter/segmenter_deit-mini_1xb16-250i_mini-ade.py',
        30,
        'DeiT, default PE',
        options=('train_cfg.max_iters=200', 'train_cfg.val_interval=200'),
        over_seeds=True,
    ),
    Step(
        'Segmenter, LaPE',
        'segmentation',
        'segmenter/segmenter_deit-mini-lape_1xb16-250i_mini-ade.py',
        30,
        'DeiT, LaPE',
        options=('train_cfg.max_iters=200', 'train_cfg.val_interval=200'),
        over_seeds=True,
    ),
)
PRETRAINING = tuple(step for step in STEPS if step.task == 'classification')
DOWNSTREAM = tuple(step for step in STEPS if step not in PRETRAINING)
DATA_COST, START_COST, PREDICTION_COST, REPORT_COST = 20, 4, 5, 5
"""Seconds on two cores: the mini data, the start of a run, one step's predictions, the report."""


def run_cost(step: Step, shorten: int) -> float:
    """Return the cost of one run whose length is divided by ``shorten``."""
    return START_COST + (step.cost - START_COST) / shorten


def shortened(train_cfg: dict, divisor: int) -> list[str]:
    """Return options that divide the length of a run, with one evaluation at its end and a warm-up that fits."""
    if 'max_epochs' in train_cfg:
        return [f'train_cfg.max_epochs={max(2, train_cfg["max_epochs"] // divisor)}']
    length = max(2, train_cfg['max_iters'] // divisor)
    schedule = ['param_scheduler.0.end=1', 'param_scheduler.1.begin=1']
    return [f'train_cfg.max_iters={length}', f'train_cfg.val_interval={length}', *schedule]
