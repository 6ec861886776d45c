"""Our plain ViT beside its peers: forward, and forward + backward, with the same weights and images."""

from benchmarks.agreement import patch_tokens
from benchmarks.comparison import Comparison, Models, Settings
from benchmarks.models import vit
from benchmarks.peers import PEERS


def comparisons(settings: Settings) -> list[Comparison]:
    """Return one per peer, size, dtype and work."""
    found = []
    for name, (peer, rules) in PEERS.items():

        def theirs(size: int, peer=peer):
            return peer(settings, size, vit(settings, size).state_dict())

        models = Models(
            f'{settings.arch}: mmlape against {name}', {name: theirs, 'mmlape': lambda size: vit(settings, size)},
            equal=True, rules=rules, arrange=patch_tokens,
        )  # fmt: skip
        found += models.comparisons('backbone', settings)
    return found
