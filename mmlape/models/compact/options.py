"""Arguments of ViT-Lite, CVT and CCT, checked; each function raises ConfigError with the valid choices."""

from mmlape.errors import ConfigError
from mmlape.models.base import archs
from mmlape.models.compact.layers import TOKENIZERS, conv_stride

POOLINGS = ('cls_token', 'sequence_pool')
_SIZES = {2: (128, 2, 128), 4: (128, 2, 128), 6: (256, 4, 512), 7: (256, 4, 512), 14: (384, 6, 1152)}
_CONVS = ((2, 3, 2), (4, 3, 2), (6, 3, 1), (6, 3, 2), (7, 3, 1), (7, 3, 2), (7, 7, 2), (14, 7, 2))


def _arch(num_layers: int, tokenizer: dict, pooling: str) -> dict:
    embed_dims, num_heads, hidden = _SIZES[num_layers]
    return dict(
        embed_dims=embed_dims,
        num_layers=num_layers,
        num_heads=num_heads,
        feedforward_channels=hidden,
        tokenizer=tokenizer,
        pooling=pooling,
    )


_PATCHES = dict(type='patch', patch_size=4)
ARCHS = {
    **{f'vit-lite-{n}/4': _arch(n, _PATCHES, 'cls_token') for n in (2, 4, 6, 7)},
    **{f'cvt-{n}/4': _arch(n, _PATCHES, 'sequence_pool') for n in (2, 4, 6, 7)},
    **{
        f'cct-{n}/{k}x{convs}': _arch(n, dict(type='conv', kernel_size=k, num_convs=convs), 'sequence_pool')
        for n, k, convs in _CONVS
    },
}


def paper_name(arch: str | dict) -> str:
    """Return the family of an arch as the papers name it."""
    arch = ARCHS[arch] if isinstance(arch, str) else arch
    if arch['tokenizer']['type'] == 'conv':
        return 'CCT'
    return 'ViT-Lite' if arch['pooling'] == 'cls_token' else 'CVT'


def resolve_arch(arch: str | dict) -> dict:
    """Return widths, depth, ``tokenizer`` and ``pooling`` of a name or a dict."""
    arch = archs.resolve_arch(arch, ARCHS)
    if arch['pooling'] not in POOLINGS:
        raise ConfigError(f'arch: unknown pooling={arch["pooling"]!r}; choose one of: {", ".join(POOLINGS)}')
    if arch['tokenizer'].get('type') not in TOKENIZERS:
        raise ConfigError(
            "arch: tokenizer must be dict(type='patch', patch_size=P) or dict(type='conv', kernel_size=K, "
            f'num_convs=N), not {dict(arch["tokenizer"])}'
        )
    return arch


def patch_side(tokenizer: dict) -> int:
    """Return the side in pixels that a token of an arch stands for."""
    if tokenizer['type'] == 'patch':
        return tokenizer['patch_size']
    return (2 * conv_stride(tokenizer['kernel_size'])) ** tokenizer['num_convs']


def check_out_type(out_type: str | None, pooling: str) -> str:
    """Return the form of the outputs; None is the arch's own pooling."""
    other = next(name for name in POOLINGS if name != pooling)
    if out_type == other:
        raise ConfigError(
            f"out_type={other!r} needs an arch with pooling={other!r}, this one's is {pooling!r}; choose one of: "
            f'{pooling}, featmap, avg_featmap, raw'
        )
    return out_type or pooling


def check_patch_norm(patch_norm: str, tokenizer: str) -> None:
    """Refuse Dual PatchNorm where there are no patches."""
    if patch_norm != 'none' and tokenizer != 'patch':
        raise ConfigError(
            f"patch_norm={patch_norm!r} norms the raw values of a patch and its token, but CCT's convolutions overlap "
            "and have no patches; leave patch_norm='none', or choose an arch of ViT-Lite or CVT"
        )
