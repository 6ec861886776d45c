"""The two losses of images and texts that belong together, over the batch of all processes.

    softmax (CLIP, LiT):  L = -1/2N sum_i [log softmax_j(l_ij)_i + log softmax_j(l_ji)_i]
    sigmoid (SigLIP):     L = -1/N sum_ij log sigmoid(z_ij (l_ij + b)),  z_ij = 1 where i = j, else -1

with l_ij = exp(t) x_i . y_j of embeddings of length 1. Each process computes the rows of its own
pairs against the pairs of all processes; the mean over the processes, which DDP takes of the
gradients, is the loss of one process with all pairs.
"""

import torch
import torch.nn.functional as F
from mmengine.dist import get_rank, get_world_size
from torch import Tensor
from torch.distributed.nn.functional import all_gather


def gather(x: Tensor) -> Tensor:
    """Gather the rows (N, D) of all processes into (W * N, D).

    Gradients flow back to the process of each row.
    """
    return torch.cat(all_gather(x)) if get_world_size() > 1 else x


def softmax_loss(images: Tensor, texts: Tensor, scale: Tensor) -> Tensor:
    """Compute the mean of both directions' cross-entropies (arXiv 2111.07991, Section 3).

    Args:
        images: (N, D), embeddings of length 1 of this process's images.
        texts: (N, D), those of their captions.
        scale: exp(t), the inverse temperature.
    """
    targets = torch.arange(len(images), device=images.device) + get_rank() * len(images)
    to_texts = F.cross_entropy(scale * images @ gather(texts).T, targets)
    to_images = F.cross_entropy(scale * texts @ gather(images).T, targets)
    return (to_texts + to_images) / 2


def sigmoid_loss(images: Tensor, texts: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    """Compute SigLIP's loss (arXiv 2303.15343, Eq. 1).

    Summed over the texts, averaged over the images.

    Args:
        images: (N, D), embeddings of length 1 of this process's images.
        texts: (N, D), those of their captions.
        scale: exp(t), the inverse temperature.
        bias: b, which every logit gets.
    """
    logits = scale * images @ gather(texts).T + bias  # (N, W * N)
    signs = torch.full_like(logits, -1.0)
    signs.diagonal(offset=get_rank() * len(images)).fill_(1.0)
    return -F.logsigmoid(signs * logits).sum(dim=1).mean()
