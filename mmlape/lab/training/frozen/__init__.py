"""A frozen part of a model runs once: its features of K views of each image are stored, and training reads them.

part      what of a model is frozen, asked of the model itself; the stored features in its place
store     files of features, one for each image
hook      fills the store before training, and puts it into the data loaders
"""

import os
from pathlib import Path


def default_folder() -> Path:
    """Return where features are stored: below ``XDG_CACHE_HOME``, by default ``~/.cache``."""
    return Path(os.environ.get('XDG_CACHE_HOME') or '~/.cache').expanduser() / 'mmlape' / 'features'


def describe_stored() -> str:
    """Return a line about what is stored in the default folder, and how it is removed; '' if nothing is."""
    folder = default_folder()
    sizes = [path.stat().st_size for path in folder.glob('*/*.safetensors')]
    return (
        f'stored features: {sum(sizes) / 1e6:,.0f} MB of {len(sizes)} images; rm -r {folder} removes them'
        if sizes
        else ''
    )
