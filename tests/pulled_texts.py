"""Write the texts that a pulled config may have: ``python tests/pulled_texts.py``, after configs or studies change.

They are those of the model, the data preprocessor and the test pipeline of every config and study of the package, and
the names that backbones of the package take beside those.
"""

import json
from collections import defaultdict
from collections.abc import Iterator

from mmlape.files import atomic_path
from mmlape.lab.engine.config import load_config
from mmlape.lab.engine.pulled import TEXTS, iter_texts, shared_parts
from mmlape.lab.studies.study_file import read_study
from mmlape.mim import mim_root
from mmlape.models import adapter, grid, swin, timm, vit  # noqa: F401, registers all
from mmlape.models.base.isotropic import OUT_TYPES
from mmlape.models.layers.attention import QKV_BIASES, WINDOW_PADDINGS
from mmlape.models.layers.norm_placement import METHODS, ON, PLACES
from mmlape.models.layers.patch_embed import PATCH_NORMS
from mmlape.models.layers.transformer_layer import FFN_TYPES
from mmlape.models.position.irpe import INDEXES, MODES, READINGS
from mmlape.models.position.irpe import METHODS as IRPE_METHODS
from mmlape.models.position.joining import PE_NORMS
from mmlape.models.position.lookhere import VIEWS
from mmlape.models.position.rotary import COORDINATES, PAIRS
from mmlape.models.swin.model import ARCHS as SWIN
from mmlape.models.swin.model import HIERARCHIES
from mmlape.models.timm.adapter import MODES as ADAPTER_MODES
from mmlape.models.timm.adapter import PATCH14
from mmlape.models.timm.model import DTYPES
from mmlape.models.vit.model import ARCHS as VIT
from mmlape.projects.ceit.model import ARCHS as CEIT
from mmlape.projects.compact.model import ARCHS as COMPACT
from mmlape.projects.compact.model import POOLINGS
from mmlape.projects.t2t.model import ARCHS as T2T
from mmlape.registry import JOININGS, POSITION_ENCODINGS

JOININGS.import_from_location()
ENCODINGS = ('none', *POSITION_ENCODINGS.module_dict)
ARGUMENTS = {
    'pe_type': ENCODINGS,
    'pe_joining': JOININGS.module_dict,
    'pe_norm': PE_NORMS,
    'patch_norm': PATCH_NORMS,
}
"""What the backbones take as these arguments, the ViT inside an adapter and DETR too."""
NAMES = {
    **{f'{place}.{key}': names for place in ('backbone', 'vit', 'model') for key, names in ARGUMENTS.items()},
    'backbone.arch': (*VIT, *SWIN, *T2T, *CEIT, *COMPACT),
    'arch.pooling': POOLINGS,
    'backbone.out_type': OUT_TYPES,
    'backbone.interpolate_mode': grid.RESIZE_MODES,
    'backbone.ffn_type': FFN_TYPES,
    'backbone.qkv_bias': [bias for bias in QKV_BIASES if isinstance(bias, str)],
    'backbone.window_padding': WINDOW_PADDINGS,
    'backbone.patch_padding': ('end', 'center'),
    'backbone.norm_placement': (*METHODS, *PLACES),
    'norm_placement.attn': PLACES,
    'norm_placement.ffn': PLACES,
    'norm_placement.on': ON,
    'backbone.pe_hierarchy': HIERARCHIES,
    'backbone.mode': ADAPTER_MODES,
    'backbone.patch14': PATCH14,
    'backbone.frozen_dtype': DTYPES,
    'vit.frozen_dtype': DTYPES,
    'pe_type.type': ENCODINGS,
    'pe_type.method': IRPE_METHODS,
    'pe_type.index': INDEXES,
    'pe_type.reading': READINGS,
    'pe_type.mode': MODES,
    'pe_type.coordinates': COORDINATES,
    'pe_type.pairs': PAIRS,
    'pe_type.view': VIEWS,
    'pipeline.type': ('mmlape.LoadImageFromFile', 'mmlape.LoadSegAnnotations'),  # of `guard_loading`
}
"""Names that constructors know, whether or not a config has them."""


def references() -> Iterator[str]:
    """Yield every config and every arm of a study, as `load_config` takes them."""
    yield from map(str, sorted((mim_root() / 'configs').glob('[!_]*/**/*.py')))
    for file in sorted((mim_root() / 'studies').glob('*.yml')):
        study = read_study(file)
        yield from map(study.reference, study.arms)


def main() -> None:
    texts = defaultdict(set)
    for place, names in NAMES.items():
        texts[place].update(names)
    for reference in references():
        for place, text in iter_texts(shared_parts(load_config(reference).to_dict())):
            if not place.endswith('.model_name'):  # any that timm has
                texts[place].add(text)
    with atomic_path(TEXTS) as partial:
        content = {place: sorted(texts[place]) for place in sorted(texts)}
        partial.write_text(json.dumps(content, indent=1) + '\n', encoding='utf-8')


if __name__ == '__main__':
    main()
