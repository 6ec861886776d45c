"""The trained model that a user names, for every command that takes one.

    RUN                  the folder of a run: its config, and its best checkpoint, else the newest
    RUN CHECKPOINT       another checkpoint of it
    CONFIG CHECKPOINT    any config, with weights of its model
    FILE                 a checkpoint that holds its config: of a run, or a published one
    hf://OWNER/NAME      a published one on the Hugging Face hub

The config of a run, of a file and of the hub may be a stranger's: it passes the gate
(`mmlape.lab.config.stored_config`). One that is named is run, as always.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from mmengine.config import Config

from mmlape.checkpoint import gate
from mmlape.checkpoint.fetching import is_on_hub, local_path
from mmlape.checkpoint.opening import OpenedFile, open_file
from mmlape.checkpoint.trained_alone import frozen_tensors
from mmlape.console.quiet import say
from mmlape.errors import CheckpointError, ConfigError, listed
from mmlape.lab.config.config_file import apply_options, config_name, load_config, parse_options
from mmlape.lab.config.stored_config import config_of_checkpoint, config_of_run, values_of_run
from mmlape.lab.runs.record import checkpoints
from mmlape.lab.runs.schema import RECORD, read_record
from mmlape.lab.studies import is_study
from mmlape.lab.training.plan import default_work_dir

Options = list[str] | dict[str, Any] | None
"""Changes of a config, as `load_config` takes them."""
CONFIGS = ('.py', '.json', '.yaml', '.yml')
GRAPH = '.onnx'
UNTRAINED = 'none'
"""In the place of a checkpoint: the initial weights."""
TAKEN = 'the folder of a run, CONFIG CHECKPOINT, a checkpoint of a run, or hf://OWNER/NAME'


@dataclass(frozen=True)
class Trained:
    """A trained model: its config with the weights."""

    config: Config
    checkpoint: str | None  # a file, or an address; None for the initial weights
    is_named: bool = True  # whether the user has named the config, which else has passed the gate
    source: str = ''  # as the user calls it
    chosen: str = ''  # which checkpoint of a run was taken, and why; '' if the user has named it
    opened: OpenedFile | None = field(default=None, repr=False)  # the checkpoint, where it is read already

    @property
    def name(self) -> str:
        """The config's and the checkpoint's, 'deit-tiny_4xb256-300e_in1k, epoch_5'."""
        names = [config_name(self.config)] if self.config.filename else []
        return ', '.join([*names, Path(self.checkpoint).stem if self.checkpoint else 'untrained'])

    @cached_property
    def file(self) -> OpenedFile | None:
        """What the checkpoint holds, read once; None without one, and for a graph."""
        if self.checkpoint is None or self.checkpoint.endswith(GRAPH):
            return None
        return self.opened or open_file(self.checkpoint, mmap=True)

    def weights(self) -> OpenedFile | str:
        """Return the checkpoint, opened where the gate reads it; ConfigError if there is none."""
        if self.checkpoint is None:
            raise ConfigError(f'{self.config.filename}: give its checkpoint instead of {UNTRAINED!r}')
        return self.checkpoint if self.is_named else self.file or self.checkpoint

    def work_dir(self) -> Path:
        """Return where what is made of the model goes by default.

        The folder of its run, else ``work_dirs/<name of the config>``.
        """
        if self.source and Path(self.source).is_dir():
            return Path(self.source)
        run = folder_of_run(self.checkpoint) if self.checkpoint else None
        return run or default_work_dir(self.config, None)

    def say_chosen(self) -> None:
        """Print which checkpoint of a run was taken, once for all processes."""
        rank = os.environ.get('RANK') or os.environ.get('SLURM_PROCID') or '0'
        if self.chosen and rank == '0':
            say(self.chosen)

    def limited(self) -> AbstractContextManager[None]:
        """Bound the size of a model that is built of a config that no user has named, by its file."""
        return self._guarded(gate.limited)

    def building(self) -> AbstractContextManager[None]:
        """Bound it likewise, and raise CheckpointError for whatever such a config raises."""
        return self._guarded(gate.building)

    def _guarded(self, guard: Callable[[str, Mapping], AbstractContextManager[None]]) -> AbstractContextManager[None]:
        if self.is_named or self.checkpoint is None:
            return nullcontext()
        return guard(self.source, {**self.file.tensors, **frozen_tensors(self.file)} if self.file else {})


def folder_of_run(checkpoint: str | os.PathLike) -> Path | None:
    """Return the folder of a checkpoint if a run has written it."""
    folder = Path(checkpoint).absolute().parent
    return folder if (folder / RECORD).is_file() else None


def open_trained(
    named: str | Path | Sequence[str | Path], cfg_options: Options = None, also: Sequence[str] = ()
) -> Trained:
    """Find the config and the checkpoint that a user names; see the beginning of this module.

    Args:
        named: One or two words.
        cfg_options: Changes of the config.
        also: Keys of a run's config that are needed beside those of an evaluation.

    Raises:
        ConfigError: No config is named, two are, or it cannot be read; or a folder is no run.
        CheckpointError: There is no checkpoint, or the gate refuses the config in it.
    """
    first, second = _one_or_two([named] if isinstance(named, str | Path) else named)
    if Path(first).is_dir():
        cfg = config_of_run(config_file(Path(first)), cfg_options, also)
        checkpoint, chosen = (second, '') if second else weights_of_run(Path(first))
        return Trained(cfg, checkpoint, False, first, chosen)
    if second:
        return Trained(load_config(first, cfg_options), None if second == UNTRAINED else second)
    file = str(local_path(first))  # the hub is asked once
    opened = open_file(file, mmap=True)
    cfg = config_of_checkpoint(opened, first)
    apply_options(cfg, parse_options(cfg_options))
    return Trained(cfg, file, False, first, opened=opened)


def trained_words(words: Sequence[str]) -> dict[str, list[str]]:
    """Return the one or two words that name each of several trained models, by its name: what differs of their paths.

    One model has no name.

    Raises:
        ConfigError: Two models have one name.
    """
    groups: list[list[str]] = []
    for word in words:
        if groups and len(groups[-1]) == 1 and _has_config(groups[-1][0]) and not _has_config(word):
            groups[-1].append(word)
        else:
            groups.append([word])
    if len(groups) == 1 or any(len(group) == 1 and is_config(group[0]) for group in groups):
        return {'': list(words)}  # what is no model is refused where it is opened
    lasts = [group[-1] for group in groups]
    plain = [one if Path(one).is_dir() or is_on_hub(one) else os.path.splitext(one)[0] for one in lasts]
    paths = [Path(os.path.abspath(one)) for one in plain]
    shared = os.path.commonpath([path.parent for path in paths])
    names = ['-'.join(path.relative_to(shared).parts) for path in paths]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ConfigError(f'two models have the name {twice}: give each once, and files of different names')
    return dict(zip(names, groups))


def _one_or_two(named: Sequence[str | Path]) -> tuple[str, str | None]:
    """Return a config, a run or a file that holds its config, and a checkpoint; or raise ConfigError."""
    first, second, *more = [*map(str, named), None, None][: max(2, len(named))]
    if more or first is None:
        raise ConfigError(f'{len(named)} words name no trained model: give {TAKEN}')
    if second is None:
        if is_config(first):
            raise ConfigError(f'{first} is a config without weights: give its checkpoint behind it, or {TAKEN}')
        if Path(first).suffix == GRAPH:
            raise ConfigError(f'{first} holds no config: give the config first')
        if not is_on_hub(first) and not Path(first).exists() and not Path(first).suffix:
            raise ConfigError(f'{first} does not exist: give {TAKEN}')
        return first, None
    if _has_config(second) or not _has_config(first):
        raise ConfigError(f'{first} {second} are not a config and its checkpoint: give {TAKEN}')
    return first, second


def _has_config(text: str) -> bool:
    return is_config(text) or Path(text).is_dir()


def is_config(text: str) -> bool:
    """Check whether a word names a config, or an arm of a study, and no folder or checkpoint."""
    is_python = Path(text).suffix in CONFIGS and not Path(text).is_dir()
    return is_python or '::' in text or is_study(text)


@contextmanager
def opened_config(text: str, cfg_options: Options = None, also: Sequence[str] = ()) -> Iterator[Config]:
    """Read a config, or that of the run in a folder, of which ``also`` names keys as in `open_trained`.

    What is built of the latter is built in this context, and of the size of the run's weights, if it has any; see
    `mmlape.checkpoint.gate.building`.
    """
    if Path(text).is_dir():
        cfg = config_of_run(config_file(Path(text)), cfg_options, also)
        kept = checkpoints(Path(text))
        with gate.building(text, open_file(kept[0], mmap=True).tensors if kept else {}):
            yield cfg
    else:
        yield load_config(text, cfg_options)


def complete_config(text: str, cfg_options: Options = None) -> Config:
    """Read a config, or all of that of the run in a folder, to be shown and not to be built."""
    if not Path(text).is_dir():
        return load_config(text, cfg_options)
    return values_of_run(config_file(Path(text)), cfg_options)


def config_file(folder: Path) -> Path:
    """Return the config that a run has written into its folder; ConfigError if it is no run, or has none."""
    record = read_record(folder)
    beside = sorted(folder.glob('*.py'))
    if record is None and len(beside) == 1 and checkpoints(folder):
        return beside[0]  # a run of MMEngine alone
    if record is None:
        found = [*folder.glob(f'*/{RECORD}'), *folder.glob(f'*/*/{RECORD}')]
        below = sorted(str(path.parent) for path in found)
        hint = f'; give one of those below it: {listed(below)}' if below else f': it has no {RECORD}'
        raise ConfigError(f'{folder} is no folder of a run{hint}')
    named = folder / f'{Path(record.config or "config").stem or "config"}.py'
    if not named.is_file() and len(beside) == 1:
        return beside[0]
    if not named.is_file():
        raise ConfigError(f'{named} does not exist: give the config and the checkpoint instead of the folder')
    return named


def weights_of_run(folder: Path) -> tuple[str, str]:
    """Return the best checkpoint of a run, else the newest, and a line that says which it is."""
    kept = sorted(folder.glob('best_*.pth'), key=lambda path: path.stat().st_mtime)
    record = read_record(folder)
    best = record.best if record else None
    for path in reversed(kept):
        if best and best.value is not None and path.stem.endswith((f'_iter_{best.step}', f'_epoch_{best.epoch}')):
            metric = f'{best.key.rpartition("/")[2]} {best.value:.4g}'
            return str(path), f'best checkpoint: {path.name}, {metric}'
    if kept:
        return str(kept[-1]), f'best checkpoint: {kept[-1].name}'
    found = checkpoints(folder)
    if not found:
        raise CheckpointError(f'{folder} has no checkpoint yet: train further, or give one of another run')
    return str(found[0]), f'newest checkpoint: {found[0].name} (no best one was kept)'
