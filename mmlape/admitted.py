"""What a config of others may name of this package's models: their classes, kinds of position encodings, words."""

from mmlape.kinds import BACKBONES, JOININGS, POSITION_ENCODINGS
from mmlape.weights import gate

gate.MODELS['mmlape'] = BACKBONES.get
gate.KINDS.update(pe_type=POSITION_ENCODINGS.get, pe_joining=JOININGS.get)
gate.WORDS.update(
    norm_placement=('both', 'normformer', 'post', 'pre', 'sub-ln'), pe_type=('none',), tokenizer=('conv', 'patch')
)
gate.NAMED += ('attn', 'ffn', 'pe_joining', 'pe_type', 'pooling', 'timm_model', 'vit_feature_source')
