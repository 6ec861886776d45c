"""Our CCT beside the public one where `--compact` gives a checkout, and its LaPE beside its default PE.

CCT-7/3x1 is made for images of 32 pixels, CCT-14/7x2 for 224; `--sizes` changes neither.
"""

from functools import partial

from benchmarks.comparison import Comparison, Models, Settings
from benchmarks.models import compact

ARCHS = {'cct-7/3x1': (32,), 'cct-14/7x2': (224,)}
TO_PUBLIC_NAMES = ((r'^(?!tokenizer\.|images$)', 'classifier.'),)


def comparisons(settings: Settings) -> list[Comparison]:
    """Return one per case, dtype and work."""
    found = []
    for arch, sizes in ARCHS.items():
        ours = partial(compact, settings, arch)
        if 'compact' in settings.checkouts:

            def public(size: int, arch=arch, ours=ours):
                from benchmarks.public import public_cct

                return public_cct(settings, arch, size, ours(size).state_dict())

            sides = {'public code': public, 'mmlape': ours}
            case = f'{arch}: mmlape against the public code'
            models = Models(case, sides, equal=True, rules=TO_PUBLIC_NAMES, memory=True)
            found += models.comparisons('compact', settings, sizes)
        sides = {'default': ours, 'LaPE': partial(ours, pe_joining='lape')}
        models = Models(f'{arch}: LaPE against default PE', sides, ('training step', 'forward'), memory=True)
        found += models.comparisons('compact', settings, sizes)
    return found
