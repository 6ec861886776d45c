"""Kernels that add in one order, so that a run on a GPU can be repeated to the bit."""

import os

import torch


def prefer_deterministic_kernels() -> None:
    """Let this process take kernels that add in one order, where there are any.

    torch warns of its own others. On a GPU, attention is computed in plain matrix products, which
    keep the weights of all pairs of tokens: the backward of its fused CUDA kernels adds in any order
    unless torch is told to raise errors instead of warnings. Deformable attention follows torch's
    setting by itself. Call it before the first work on a GPU; it lasts until the process ends.
    """
    os.environ.setdefault('CUBLAS_WORKSPACE_CONFIG', ':4096:8')
    torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic = False, True
    # the CPU's fused kernel, which these switch as well, adds in one order
    if torch.cuda.is_available():
        torch.backends.cuda.enable_flash_sdp(False)
        torch.backends.cuda.enable_mem_efficient_sdp(False)
        torch.backends.cuda.enable_cudnn_sdp(False)
    torch.use_deterministic_algorithms(True, warn_only=True)
