"""Norms and activations from a dict, as MMCV builds them.

PyTorch's under their usual names, others by MMCV.
"""

from torch import nn

from mmlape.errors import ConfigError

NORMS = {
    'LN': nn.LayerNorm,
    'GN': nn.GroupNorm,
    'BN': nn.BatchNorm2d,
    'BN1d': nn.BatchNorm1d,
    'BN2d': nn.BatchNorm2d,
    'SyncBN': nn.SyncBatchNorm,
}
ACTIVATIONS = {
    kind.__name__: kind
    for kind in (
        nn.ReLU,
        nn.LeakyReLU,
        nn.PReLU,
        nn.ReLU6,
        nn.ELU,
        nn.Sigmoid,
        nn.Tanh,
        nn.SiLU,
        nn.GELU,
    )
}


def build_norm(cfg: dict, channels: int) -> nn.Module:
    """Build a norm.

    Args:
        cfg: ``type``, a key of ``NORMS``, a class, or a name that MMCV knows; its arguments, of
            which ``eps`` is 1e-5 by default; and ``requires_grad``, whether its parameters are
            trained.
        channels: How many channels it norms.

    Raises:
        ConfigError: If there is no type, or MMCV is needed and not installed.
    """
    options = _options('norm_cfg', cfg, "dict(type='LN', eps=1e-6)")
    kind = options.pop('type')
    kind = NORMS.get(kind, kind) if isinstance(kind, str) else kind
    if isinstance(kind, str):
        return _of_mmcv('norm_cfg', kind, NORMS).build_norm_layer(cfg, channels)[1]
    trained = options.pop('requires_grad', True)
    options.setdefault('eps', 1e-5)
    if kind is nn.GroupNorm:
        norm = kind(num_channels=channels, **options)
    else:
        norm = kind(channels, **options)
    for parameter in norm.parameters():
        parameter.requires_grad = trained
    return norm


def build_activation(cfg: dict) -> nn.Module:
    """Build an activation from ``type``, a key of ``ACTIVATIONS``, a class, or a name that MMCV knows.

    Raises:
        ConfigError: If there is no type, or MMCV is needed and not installed.
    """
    options = _options('act_cfg', cfg, "dict(type='GELU')")
    kind = options.pop('type')
    kind = ACTIVATIONS.get(kind, kind) if isinstance(kind, str) else kind
    if isinstance(kind, str):
        return _of_mmcv('act_cfg', kind, ACTIVATIONS).build_activation_layer(cfg)
    return kind(**options)


def _options(argument: str, cfg: dict, example: str) -> dict:
    if not isinstance(cfg, dict) or 'type' not in cfg:
        raise ConfigError(f'{argument}={cfg!r} must be a dict with a type, such as {example}')
    return dict(cfg)


def _of_mmcv(argument: str, kind: str, known: dict):
    try:
        import mmcv.cnn
    except ImportError as error:
        raise ConfigError(
            f'{argument}: type={kind!r} is none of {", ".join(known)}, and MMCV, which may have '
            f'it, does not import ({error}); choose one of those, or install MMCV'
        ) from error
    return mmcv.cnn
