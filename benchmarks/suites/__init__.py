"""The suites: each module lists what it compares, and measures nothing itself."""

from importlib import import_module

from benchmarks.comparison import Comparison, Settings

SUITES = {
    'joining': 'LaPE, PVG, MPVG, Dual PatchNorm and placements of the norms, beside the plain ViT',
    'frozen': 'a frozen ViT: training from stored features, and two heads over one ViT beside two models',
    'adapter': "ViT-Adapter: LaPE, Dual PatchNorm, folded BatchNorm; timm's ViT; the public code where it is given",
}


def comparisons(suite: str, settings: Settings) -> list[Comparison]:
    """Return the comparisons of a suite under these settings."""
    return import_module(f'benchmarks.suites.{suite}').comparisons(settings)
