"""The suites: each module lists what it compares, and measures nothing itself."""

from importlib import import_module

from benchmarks.comparison import Comparison, Settings

SUITES = {
    'backbone': "our ViT beside timm's, mmpretrain's and mmsegmentation's",
    'swin': "our Swin beside timm's and mmpretrain's, and LaPE beside default",
    'joining': 'LaPE, PVG, MPVG, Dual PatchNorm and placements of the norms, beside the plain ViT',
    'timm': "add_lape and add_dual_patchnorm in timm's ViT, beside that ViT",
    'position': "encodings inside attention beside none or Swin's bias, and the public iRPE code where it is given",
    'adapter': 'ViT-Adapter: LaPE beside default, and the public code where a checkout is given',
    'beit': 'ViT-Adapter over BEiT and the public code, where a checkout is given',
    'foundation': "the adapter over timm's DINOv3, and DINOv3's own code where a checkout is given",
    'public': 'the public LaPE code, where a checkout is given',
    't2t': 'T2T-ViT-7: LaPE beside default, and the public code where a checkout is given',
    'ceit': 'CeiT-Ti: LaPE beside default, and the public code where a checkout is given',
    'compact': 'CCT: LaPE beside default, and the public code where a checkout is given',
    'deform': 'the backends of deformable attention',
    'mask2former': "Mask2Former's pixel decoder on our deformable attention and on mmcv's",
    'ops': "mmcv's ops on torchvision's kernels beside the compiled ones",
    'modes': 'torch.compile, recomputed activations, channels-last',
    'optimiser': 'AdamW on groups of equal options, beside a group for each parameter',
    'models': 'complete detectors and segmentors: training steps and inference',
    'heads': 'Mask2Former of transformers 5 over our adapters, beside its own Swin-T',
    'export': 'complete models as ONNX graphs in onnxruntime beside PyTorch',
    'recipes': 'training steps of the recipes with their data loading, beside the same over public backbones',
    'processes': 'the throughput of one process and of two',
    'trainer': "training iterations of our trainer beside MMSegmentation's runner",
    'evaluation': 'computing COCO and IoU metrics',
    'loading': 'data loading on the mini data',
    'startup': 'processor time of imports, help texts, and training to its first iteration',
    'memory': 'peak memory of what the other suites time',
}


def comparisons(name: str, settings: Settings) -> list[Comparison]:
    """Return the comparisons of a suite under these settings."""
    return import_module(f'benchmarks.suites.{name}').comparisons(settings)
