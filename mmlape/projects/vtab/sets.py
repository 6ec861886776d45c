"""The sets of a VTAB benchmark, the arms of a study: what is checked of data and checkpoint before training."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mmengine.config import Config

from mmlape.checkpoint import load_model
from mmlape.checkpoint.loading import warn_of_normalisation
from mmlape.checkpoint.opening import open_file
from mmlape.errors import ConfigError, DataError, listed
from mmlape.lab.config.config_file import load_config
from mmlape.lab.datasets.checks import check_data
from mmlape.lab.studies import Arm, is_study, read_study
from mmlape.lab.training.optim import build_model, quiet_logger

ALL_IMAGES = 'train_dataloader.dataset.ann_file=train800val200.txt'
"""The option that trains on the 200 images of validation, too."""


@dataclass(frozen=True)
class VtabSet:
    """One set, of the name and group in ``vtab`` of its config."""

    name: str
    group: str
    config: str  # an arm of a study, or a config
    # ``key=value`` changes: the data root, the checkpoint to start from, and the user's
    cfg_options: tuple[str, ...]
    cfg: Config  # the config with these changes
    # the paper's figure for its test split; None without one, or if the model is another one
    figure: float | None = None

    @property
    def test_list(self) -> Path:
        """The list of the test split."""
        return Path(self.cfg.data_root) / 'test.txt'

    def arm(self, rate: float, images: int = 800) -> Arm:
        """Return the runs with a learning rate.

        Trained on 800 images, or on 1000 with those of validation.
        """
        more = (f'optim_wrapper.optimizer.lr={rate:g}', *([ALL_IMAGES] if images == 1000 else []))
        suffix = '-1000' if images == 1000 else ''
        return Arm(f'{self.name}-lr{rate:g}{suffix}', self.config, (*self.cfg_options, *more))


@dataclass(frozen=True)
class VtabSets:
    """The sets that are trained, and those that they are part of."""

    sets: Sequence[VtabSet]  # group by group
    # the group of every set of the study, those included that are not trained
    groups: Mapping[str, str]
    absent: Mapping[str, str]  # why sets are left out, by name
    # the study's name of the model; None for configs, or if options change the study's model
    model: str | None = None
    paper: str = ''  # whose the figures of the sets are, and in which table
    runs: str = 'not stated'  # how many runs a figure is of


def read_sets(
    configs: Sequence[str],
    checkpoint: str,
    data: str | Path,
    cfg_options: Sequence[str] = (),
    skip: bool = False,
    base: str | None = None,
    names: Sequence[str] = (),
) -> VtabSets:
    """Read the sets of a study, or of configs.

    Args:
        configs: A study, or files of configs.
        checkpoint: To start from: a complete model, of which ``load_fresh`` is left out, or a
            backbone.
        data: Holds a folder for each set, of the name that the config's ``data_root`` ends with.
        cfg_options: Changes of every config.
        skip: Whether to leave out sets whose folder is missing.
        base: Which base of the study, that is, which model; default: the first one.
        names: Which sets; default: all.

    Raises:
        ConfigError: A config is of no set, two are of the same one, or there is no such base or
            set.
        DataError: Folders are missing, and ``skip`` is not set.
    """
    arms = [arm for config in configs for arm in _arms(str(config), base)]
    start, same_model = (_start(checkpoint), not any(option.startswith('model.') for option in cfg_options))
    sets, groups, absent = [], {}, {}
    for arm in arms:
        config = arm.config
        cfg = load_config(config)
        about = cfg.get('vtab')
        if not about:
            raise ConfigError(f"{config} is no set of VTAB: it has no vtab=dict(name='...', group='...')")
        if about.name in groups:
            raise ConfigError(f'two configs of the set {about.name}')
        groups[about.name] = about.group
        if names and about.name not in names:
            continue
        folder = Path(data) / Path(cfg.data_root).name
        if not folder.is_dir():
            absent[about.name] = f'no folder {folder}'
            continue
        options = (f'data_root={str(folder)!r}', *start, *cfg_options)
        with quiet_logger():
            cfg = load_config(config, list(options))
        figure = float(arm.figure) if arm.figure and same_model else None
        sets.append(VtabSet(about.name, about.group, config, options, cfg, figure))
    unknown = [name for name in names if name not in groups]
    if unknown:
        raise ConfigError(f"--sets: no set '{unknown[0]}'; there are: {', '.join(groups)}")
    if absent and not (skip and sets):
        raise DataError(
            f'{len(absent)} of {len(sets) + len(absent)} sets are missing below {data} '
            f'({listed(list(absent.values()), 3)}): put them there '
            '(configs/vtab/README.md says where they are found), or leave them out '
            'by --skip-missing'
        )
    order = list(dict.fromkeys(groups.values()))
    models = {arm.base_title or None for arm in arms}
    model = models.pop() if same_model and len(models) == 1 else None
    study = next((read_study(config) for config in configs if is_study(str(config))), None)
    return VtabSets(
        sorted(sets, key=lambda entry: order.index(entry.group)),
        groups,
        absent,
        model,
        study.source if study else '',
        study.runs if study else 'not stated',
    )


def _arms(config: str, base: str | None) -> list[Arm]:
    """Return the arms of each set of a study, or one config as an arm."""
    if not is_study(config):
        return [Arm.of(config)]
    study = read_study(config)
    bases = list(dict.fromkeys(arm.base_name for arm in study.arms))
    if base is not None and base not in bases:
        raise ConfigError(f"--base: {config} has no base '{base}'; there are: {', '.join(bases)}")
    return [arm for arm in study.arms if arm.base_name == (base or bases[0])]


def _start(checkpoint: str) -> tuple[str, ...]:
    """Return the options that start a run from a checkpoint of a complete model, or of a backbone."""
    tensors = open_file(checkpoint).tensors
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
    for entry in sets:
        try:
            with quiet_logger():
                check_data(entry.cfg)
                if images == 1000:
                    check_data(load_config(entry.config, [*entry.cfg_options, ALL_IMAGES]), ('train',))
        except DataError as error:
            errors.append(f'{entry.name}: {error}')
        model = json.dumps([entry.cfg.model.backbone, {**entry.cfg.model.head, 'num_classes': None}], default=str)
        if model not in models:
            models.add(model)
            _check_start(entry.cfg)
    if errors:
        raise DataError('\n'.join(errors))


def _check_start(cfg: Config) -> None:
    """Load the checkpoint that a configuration starts from into its model."""
    with quiet_logger():
        model = build_model(cfg)
        if cfg.get('load_from'):
            load_model(model, cfg.load_from, resize=True, fresh=cfg.get('load_fresh', ()))
        else:
            model.backbone.init_weights()
            warn_of_normalisation(model)
