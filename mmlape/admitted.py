"""What a config of others may name of this package's models: their classes, kinds of position encodings, words."""

from mmlape.checkpoint import gate
from mmlape.kinds import BACKBONES, JOININGS, POSITION_ENCODINGS

gate.MODELS['mmlape'] = BACKBONES.get
gate.KINDS += [POSITION_ENCODINGS.get, JOININGS.get]
gate.WORDS |= {'both', 'conv', 'none', 'normformer', 'patch', 'post', 'pre', 'sub-ln'}
gate.NAMED += ('attn', 'ffn', 'pe_joining', 'pe_type', 'pooling', 'timm_model', 'vit_feature_source')
