"""The sets of a VTAB benchmark: what their configs say, and what is checked of data and checkpoint before training."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from mmengine.config import Config

from mmlape.checkpoint import load_model, read_checkpoint, state_dict_of
from mmlape.checkpoint.loading import warn_of_normalisation
from mmlape.datasets.checks.quick import check_data
from mmlape.engine.config import load_config
from mmlape.engine.optim import build_model, quiet_logger
from mmlape.errors import CheckpointError, ConfigError, DataError, listed
from mmlape.experiments.arm import Arm
from mmlape.experiments.vtab.paper import paper_table

ALL_IMAGES = 'train_dataloader.dataset.ann_file=train800val200.txt'
"""The option that trains on the 200 images of validation, too."""


@dataclass(frozen=True)
class VtabSet:
    """One set.

    Attributes:
        name, group: As ``vtab`` of its config says.
        config: Its file, or ``mmlape::classification/vtab/name``.
        cfg_options: ``key=value`` changes: the data root, the checkpoint to start from, and the user's.
        cfg: The config with these changes.
    """

    name: str
    group: str
    config: str
    cfg_options: tuple[str, ...]
    cfg: Config

    def arm(self, rate: float, images: int = 800) -> Arm:
        """Return the runs with a learning rate: trained on 800 images, or on 1000 with those of validation."""
        more = (f'optim_wrapper.optimizer.lr={rate:g}', *([ALL_IMAGES] if images == 1000 else []))
        suffix = '-1000' if images == 1000 else ''
        return Arm(f'{self.name}-lr{rate:g}{suffix}', self.config, (*self.cfg_options, *more))


def read_sets(
    configs: Sequence[str], checkpoint: str, data: str | Path, cfg_options: Sequence[str] = (), skip: bool = False
) -> tuple[list[VtabSet], dict[str, str]]:
    """Read the configs of sets.

    Args:
        configs: Their files.
        checkpoint: To start from: a complete model, of which ``load_fresh`` is left out, or a backbone.
        data: Holds a folder for each set, of the name that the config's ``data_root`` ends with.
        cfg_options: Changes of every config.
        skip: Whether to leave out sets whose folder is missing.

    Returns:
        The sets, group by group, and why others are left out, by name.

    Raises:
        ConfigError: A config is of no set, or two are of the same one.
        DataError: Folders are missing, and ``skip`` is not set.
    """
    sets, absent = [], {}
    start = _start(checkpoint)
    for config in configs:
        cfg = load_config(config)
        about = cfg.get('vtab')
        if not about:
            raise ConfigError(f"{config} is no set of VTAB: it has no vtab=dict(name='...', group='...')")
        folder = Path(data) / Path(cfg.data_root).name
        if not folder.is_dir():
            absent[about.name] = f'no folder {folder}'
            continue
        options = (f'data_root={str(folder)!r}', *start, *cfg_options)
        with quiet_logger():
            sets.append(VtabSet(about.name, about.group, str(config), options, load_config(config, list(options))))
    names = [one.name for one in sets] + list(absent)
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigError(f'two configs of the set {", ".join(twice)}')
    if absent and not (skip and sets):
        raise DataError(
            f'{len(absent)} of {len(names)} sets are missing below {data} ({listed(list(absent.values()), 3)}): put '
            'them there (configs/classification/vtab/README.md says where they are found), or leave them out by '
            '--skip-missing'
        )
    groups = [*paper_table()['Groups'], *(one.group for one in sets)]
    return sorted(sets, key=lambda one: groups.index(one.group)), absent


def _start(checkpoint: str) -> tuple[str, ...]:
    """Return the options that start a run from a checkpoint of a complete model, or of a backbone."""
    tensors = state_dict_of(read_checkpoint(checkpoint), checkpoint)
    if any(name.startswith('backbone.') for name in tensors):
        return (f'load_from={str(checkpoint)!r}',)
    # in a list, as a dict would be merged into the config's own initialisation
    return (f'model.backbone.init_cfg=[dict(type="Pretrained", checkpoint={str(checkpoint)!r})]',)


def check_sets(sets: Iterable[VtabSet], images: int = 800) -> None:
    """Check lists, labels and images of every set, and that its model takes the checkpoint.

    Raises:
        DataError: Of all sets with errors, one line each.
        CheckpointError: The checkpoint is of another architecture.
    """
    errors, models = [], set()
    for one in sets:
        try:
            with quiet_logger():
                check_data(one.cfg)
                if images == 1000:
                    check_data(load_config(one.config, [*one.cfg_options, ALL_IMAGES]), ('train',))
        except DataError as error:
            errors.append(f'{one.name}: {error}')
        model = json.dumps([one.cfg.model.backbone, {**one.cfg.model.head, 'num_classes': None}], default=str)
        if model not in models:
            models.add(model)
            check_start(one.cfg)
    if errors:
        raise DataError('\n'.join(errors))


def check_start(cfg: Config) -> None:
    """Load the checkpoint that a configuration starts from into its model.

    Raises:
        CheckpointError: It does not fit; the message names the first difference.
    """
    try:
        with quiet_logger():
            model = build_model(cfg)
            if cfg.get('load_from'):
                load_model(model, cfg.load_from, resize=True, fresh=cfg.get('load_fresh', ()))
            else:
                model.backbone.init_weights()
                warn_of_normalisation(model)
    except CheckpointError as error:
        first, *lines = str(error).splitlines()
        problems = [line.strip() for line in lines if line.startswith(' ')]
        hint = '; the model is changed by --cfg-options, such as model.backbone.patch_norm=dual' if problems else ''
        raise CheckpointError(' '.join([first, listed(problems, 1)]).strip() + hint) from error
