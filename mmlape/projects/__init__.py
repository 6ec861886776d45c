"""What the rows of single papers need.

A module or a folder each, which nothing else imports, so that any can be left out. The tables here say
what each offers: names by the module that has them, which is imported on first use.

    BACKBONES     backbones, which ``mmlape.get_model``, checkpoints and configs find by name
    MODELS        other models: detectors, heads and necks, which derive from classes of OpenMMLab
    REGISTERED    datasets, transforms, metrics and hooks, which register themselves
    COMMANDS      sub-commands with a line of help; the module is ``command``, as `mmlape.commands` describes it
"""

from pkgutil import iter_modules

from mmlape.lazy import attributes

_PRESENT = {found.name for found in iter_modules(__path__)}


def _present(modules: dict[str, str]) -> dict[str, str]:
    """Return the names of projects that are not left out, with the module of each below this package."""
    return {name: path for name, path in modules.items() if path.partition('.')[0] in _PRESENT}


BACKBONES = _present({'CeiT': 'ceit', 'CompactTransformer': 'compact', 'T2TViT': 't2t'})
MODELS = _present({
    'BNHead': 'dinov2',
    'ChannelMapperWithPooling': 'upgraded_mask_rcnn',
    'DETR': 'detr.model',
    'ExtraAttention': 'htc',
    'HybridTaskCascadeRoIHead': 'htc',
    'LiT': 'lit.model',
    'MSDeformAttnPixelDecoder': 'mask2former',
    'Mask2FormerHead': 'mask2former',
    'MultiScaleDeformableAttention': 'mask2former',
    'PlainDETR': 'plain_detr.model',
    'PlainDETRHead': 'plain_detr.model',
    'PlainMaskHead': 'pmt.head',
    'TextTransformer': 'lit.text',
    'TransformersText': 'lit.text',
})  # fmt: skip
REGISTERED = _present({
    'BigVisionContrast': 'big_vision',
    'CaptionDataset': 'lit.captions',
    'CaptionRecall': 'lit.retrieval',
    'FewShotDataset': 'few_shot.dataset',
    'FewShotMetric': 'few_shot.metric',
    'GzippedFashionMNIST': 'fashion_mnist',
    'InstaBoost': 'htc',
    'MaskAnnealingHook': 'pmt.head',
    'PEBalanceHook': 'pe_figures.balance',
    'RandomCaption': 'lit.captions',
})  # fmt: skip
COMMANDS = {
    name: (f'{__name__}.{folder}.command', text)
    for name, folder, text in (
        ('visualize-pe', 'pe_figures', 'draw the position embedding of each layer, and its correlation'),
        ('probe', 'probe', 'probe how much position the features of any plain ViT hold, by layer'),
        ('few-shot', 'few_shot', "measure few-shot accuracy of a classifier's features, such as 25-shot on ImageNet"),
        ('size-sweep', 'size_sweep', 'evaluate trained models at several test sizes, as a table and a figure'),
        ('vtab', 'vtab', 'fine-tune a pretrained model on the sets of VTAB-1k, and average'),
    )
    if folder in _PRESENT
}
_MODULES = BACKBONES | MODELS | REGISTERED

__all__ = list(_MODULES)
__getattr__, __dir__ = attributes(__name__, _MODULES)
