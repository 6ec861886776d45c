"""Norms and activations from a dict, as MMCV builds them, and initial values of linear maps.

PyTorch's under their usual names, others by MMCV.
"""

from torch import nn
from torch.nn.init import trunc_normal_

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
    layer_class.__name__: layer_class
    for layer_class in (nn.ReLU, nn.LeakyReLU, nn.PReLU, nn.ReLU6, nn.ELU, nn.Sigmoid, nn.Tanh, nn.SiLU, nn.GELU)
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
    layer_class, options = _resolved('norm_cfg', cfg, NORMS, "dict(type='LN', eps=1e-6)")
    if isinstance(layer_class, str):
        return _of_mmcv('norm_cfg', layer_class, NORMS).build_norm_layer(cfg, channels)[1]
    trained = options.pop('requires_grad', True)
    options.setdefault('eps', 1e-5)
    if layer_class is nn.GroupNorm:
        norm = layer_class(num_channels=channels, **options)
    else:
        norm = layer_class(channels, **options)
    for parameter in norm.parameters():
        parameter.requires_grad = trained
    return norm


def build_activation(cfg: dict) -> nn.Module:
    """Build an activation from ``type``, a key of ``ACTIVATIONS``, a class, or a name that MMCV knows.

    Raises:
        ConfigError: If there is no type, or MMCV is needed and not installed.
    """
    layer_class, options = _resolved('act_cfg', cfg, ACTIVATIONS, "dict(type='GELU')")
    if isinstance(layer_class, str):
        return _of_mmcv('act_cfg', layer_class, ACTIVATIONS).build_activation_layer(cfg)
    return layer_class(**options)


def _resolved(argument: str, cfg: dict, known: dict, example: str) -> tuple:
    """Return the class of a layer, or the name that MMCV may know, and its arguments."""
    if not isinstance(cfg, dict) or 'type' not in cfg:
        raise ConfigError(f'{argument}={cfg!r} must be a dict with a type, such as {example}')
    options = dict(cfg)
    layer_class = options.pop('type')
    return (known.get(layer_class, layer_class) if isinstance(layer_class, str) else layer_class), options


def _of_mmcv(argument: str, layer_class: str, known: dict):
    try:
        import mmcv.cnn
    except ImportError as error:
        raise ConfigError(
            f'{argument}: type={layer_class!r} is none of {", ".join(known)}, and MMCV, which may have '
            f'it, does not import ({error}); choose one of those, or install MMCV'
        ) from error
    return mmcv.cnn


def init_linear(module: nn.Module) -> None:
    """Initialise a linear map as DeiT does; for ``apply``."""
    if isinstance(module, nn.Linear):
        trunc_normal_(module.weight, std=0.02)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
