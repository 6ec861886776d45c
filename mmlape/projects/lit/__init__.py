"""LiT (CVPR 2022): a text tower that learns to agree with a frozen image tower, with captions and retrieval."""

MODELS = {'LiT': 'model', 'TextTransformer': 'text', 'TransformersText': 'pretrained'}
REGISTERED = {
    'CaptionDataset': 'captions',
    'CaptionRecall': 'retrieval',
    'ImageFeatureHook': 'features',
    'RandomCaption': 'captions',
}
