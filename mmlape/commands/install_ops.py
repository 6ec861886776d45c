"""Write NMS, soft NMS, RoIAlign, the focal loss and deformable attention on torchvision's kernels into mmcv's folder
of this environment, as `mmcv/_ext.py`. The commands of mmlape do without it; the tools of mmdet, mmseg and mmpretrain
need it where mmcv is not compiled. A compiled mmcv goes first."""

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add nothing."""


def run(args: argparse.Namespace) -> int:
    from mmlape.openmmlab.mmcv_ops import install_ops, installed_ops

    found = installed_ops()
    if found and found.suffix != '.py':
        print('mmcv has compiled ops: nothing to do')
    else:
        print(f'wrote {install_ops()}')
    return 0
