"""The neck of ViT-Adapter's upgraded Mask R-CNN."""

MODELS = {'ChannelMapperWithPooling': 'pooling'}
