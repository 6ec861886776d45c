"""Our plain ViT beside its peers: forward, and forward + backward, with the same weights and images."""

from collections.abc import Callable

from benchmarks.comparison import WORKS, Comparison, Settings, Side
from benchmarks.models import vit
from benchmarks.peers import PEERS, agreement

TYPICAL = ('forward', 'forward + backward')


def comparisons(settings: Settings) -> list[Comparison]:
    """One per size, dtype, work and peer."""
    return [
        _comparison(settings, size, dtype, work, peer)
        for size in settings.sizes
        for dtype in settings.dtypes
        for peer in PEERS
        for work in TYPICAL
    ]


def _comparison(settings: Settings, size: int, dtype: str, work: str, peer: str) -> Comparison:
    images = settings.images(size)

    def theirs():
        return PEERS[peer](settings, size, vit(settings, size).state_dict())

    def side(build: Callable) -> Callable:
        return lambda: WORKS[work](build(), settings.picture(size), settings, dtype)

    return Comparison(
        suite='backbone',
        case=f'{settings.arch}: mmlape against {peer}',
        work=work,
        shape=settings.shape(size),
        dtype=dtype,
        sides=[Side(peer, side(theirs)), Side('mmlape', side(lambda: vit(settings, size)))],
        items=images,
        note=lambda: agreement(vit(settings, size), theirs(), settings.picture(size, 1)),
    )
