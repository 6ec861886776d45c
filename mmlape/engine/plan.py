"""The configuration of a run, settled once: what the trainer, the evaluator and a study all work from."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from mmengine.config import Config

from mmlape.datasets.formats import iter_sources
from mmlape.datasets.formats.base import DataSource
from mmlape.engine.batch import Batch, apply_batch_policy
from mmlape.engine.config import config_name
from mmlape.engine.distributed.sharding import distribution
from mmlape.engine.optim import set_amp
from mmlape.engine.schedule import check_schedule
from mmlape.errors import ConfigError
from mmlape.runs.identity import collect

TRAIN_KEYS = ('model', 'train_dataloader', 'train_cfg', 'optim_wrapper')


@dataclass
class RunPlan:
    """A training run as its configuration and options describe it.

    Attributes:
        cfg: The configuration that is trained, with precision, accumulation and schedule applied.
        work_dir: An absolute path.
        batch: The images of one optimiser step.
        batch_policy: 'recipe', 'unknown' or one of :data:`mmlape.engine.batch.POLICIES`.
        distributed: 'ddp' or 'fsdp'.
        seed: None for that of the resumed run, or a random one.
        sources: The datasets of known format; they read and change parts of ``cfg``.
    """

    cfg: Config
    work_dir: Path
    batch: Batch
    batch_policy: str
    distributed: str
    seed: int | None
    sources: list[DataSource]

    @cached_property
    def identity(self) -> dict:
        """See :func:`mmlape.runs.identity.collect`; the checkpoints that training starts from are hashed once."""
        return collect(self.cfg, self.seed, self.batch.world_size, self.batch.total, self.batch_policy)


def plan_run(
    cfg: Config,
    world_size: int,
    work_dir: str | Path | None = None,
    seed: int | None = None,
    amp: str | None = None,
    batch: str | None = None,
) -> RunPlan:
    """Apply the options of a run to its configuration.

    Args:
        cfg: Changed in place.
        world_size: Number of processes.
        work_dir: See :func:`default_work_dir`.
        seed: By default the configuration's ``randomness.seed``.
        amp: 'bf16' or 'fp16' for mixed precision.
        batch: One of :data:`mmlape.engine.batch.POLICIES`.

    Raises:
        ConfigError: The configuration cannot be trained like this.
    """
    require_keys(cfg, TRAIN_KEYS, 'trained')
    work_dir = default_work_dir(cfg, work_dir)
    check_schedule(cfg)
    if amp:
        set_amp(cfg, amp)
    distributed = distribution(cfg)
    images, policy = apply_batch_policy(cfg, world_size, batch)
    randomness = cfg.get('randomness') or {}
    unknown = set(randomness) - {'seed', 'deterministic', 'diff_rank_seed'}
    if unknown:
        raise ConfigError(f'randomness has no {min(unknown)}: its keys are seed, deterministic and diff_rank_seed')
    seed = randomness.get('seed') if seed is None else seed
    return RunPlan(cfg, work_dir, images, policy, distributed, seed, list(iter_sources(cfg)))


def require_keys(cfg: Config, keys: tuple[str, ...], purpose: str) -> None:
    """Raise ConfigError if a configuration lacks a part that its purpose ('trained', 'tested') needs."""
    missing = [key for key in keys if cfg.get(key) is None]  # `test_cfg = dict()` is MMEngine's own loop
    if missing:
        raise ConfigError(f'{cfg.filename} cannot be {purpose}: it has no {", ".join(missing)}')


def default_work_dir(cfg: Config, work_dir: str | Path | None) -> Path:
    """Return the given work dir, else the configuration's own, else ``work_dirs/<name of the configuration>``."""
    return Path(work_dir or cfg.get('work_dir') or Path('work_dirs') / config_name(cfg)).absolute()
