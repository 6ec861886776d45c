"""What of a model is compiled: its layers, the backbone as one graph, or the backbone as CUDA graphs.

:class:`mmlape.lab.engine.hooks.CompileBackboneHook` does it.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import nn

from mmlape.errors import ConfigError

KEY = 'compile_backbone'
MODES = ('layers', 'graphs')
"""What ``--compile`` takes, and the key beside True and options of ``torch.compile``."""
SIZES = 8
"""How many variants of one part are compiled; images of further sizes run as they are."""


def compile_mode(cfg: Mapping) -> str | None:
    """Return 'layers', 'graphs', 'backbone' (as one graph), or None, as a configuration says.

    Raises:
        ConfigError: It says something else, or what cannot be trained like this.
    """
    value = cfg.get(KEY)
    if value is None or value is False:
        return None
    if value is True or isinstance(value, dict):
        return 'backbone'
    if value not in MODES:
        raise ConfigError(f"{KEY}={value!r}: give 'layers', 'graphs', True, or a dict of options of torch.compile")
    if value == 'graphs':
        _check_graphs(cfg)
    return value


def _check_graphs(cfg: Mapping) -> None:
    """Raise ConfigError where a captured graph would not be that of the next iteration."""
    if (cfg.get('optim_wrapper') or {}).get('accumulative_counts', 1) > 1:
        raise ConfigError(
            f"{KEY}='graphs': gradients that accumulate stay in memory that the next replay overwrites: "
            'use --compile layers'
        )


def check_compile(mode: str | None) -> None:
    """Raise ConfigError if this machine cannot train in a mode."""
    if mode == 'graphs' and not torch.cuda.is_available():
        raise ConfigError('--compile graphs needs a GPU: use --compile layers on the CPU')


def allow_variants(units: Sequence[nn.Module]) -> None:
    """Let as many variants of a code be compiled as parts that share it have: in sizes and in their constants."""
    import torch._dynamo  # here: it takes a second

    config, number = torch._dynamo.config, SIZES * len(units)
    config.recompile_limit = max(config.recompile_limit, number)
    config.accumulated_recompile_limit = max(config.accumulated_recompile_limit, SIZES * number)
