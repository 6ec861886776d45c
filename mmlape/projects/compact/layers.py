"""The tokenizers and the layer of ViT-Lite, CVT and CCT ('Escaping the Big Data Paradigm', arXiv 2104.05704).

    patches:       tokens = Conv(x), kernel = stride
    convolutions:  x <- MaxPool(ReLU(Conv(x))), one or several times
    layer:         x <- x + Attention(join(x, pe));  x <- norm1(x);  x <- x + MLP(x)

The residual stream itself is normed before the MLP, so a PE added at the input is normed again in
every layer. Parameter names are those of the public code.
"""

import torch.nn.functional as F
from torch import Tensor, nn

from mmlape.errors import ConfigError
from mmlape.models.grid import Grid, require_patch
from mmlape.models.layers.patch_embed import PatchEmbed
from mmlape.models.layers.transformer_layer import BaseTransformerLayer
from mmlape.models.named_layers import build_norm
from mmlape.models.position import Joining, Stream


class PatchTokenizer(PatchEmbed):
    """``PatchEmbed`` under the public code's names."""

    def __init__(
        self, in_channels: int, embed_dims: int, patch_size: int, patch_norm: str = 'none', eps: float = 1e-5
    ):
        super().__init__(in_channels, embed_dims, patch_size, patch_norm, eps)
        self.conv_layers = nn.Sequential(nn.Sequential(self._modules.pop('proj')))

    @property
    def proj(self) -> nn.Conv2d:
        """The convolution."""
        return self.conv_layers[0][0]


def conv_stride(kernel_size: int) -> int:
    """Return the stride that the public code gives a convolution."""
    return max(1, kernel_size // 2 - 1)


def patch_side(tokenizer: dict) -> int:
    """Return the side in pixels that a token of a tokenizer stands for."""
    if tokenizer['type'] == 'patch':
        return tokenizer['patch_size']
    return (2 * conv_stride(tokenizer['kernel_size'])) ** tokenizer['num_convs']


class ConvTokenizer(nn.Module):
    """Convolutions without bias, each followed by ReLU and a max pooling of 3x3 with stride 2.

    Any image size. Stride and padding follow the kernel size K as in the public code, max(1, K // 2
    - 1) and K // 2. A side of n pixels then becomes ceil(n / patch_size) tokens.

    Raises:
        ConfigError: If the kernels have no centre.
    """

    hidden_channels = 64  # of all but the last convolution, in every size of the public code

    def __init__(self, in_channels: int, embed_dims: int, kernel_size: int = 3, num_convs: int = 1):
        super().__init__()
        if kernel_size < 3 or kernel_size % 2 == 0:
            raise ConfigError(f"tokenizer: kernel_size of type='conv' must be 3, 5, 7 or so, not {kernel_size}")
        stride = conv_stride(kernel_size)
        self.patch_size = (2 * stride) ** num_convs
        channels = [in_channels, *[self.hidden_channels] * (num_convs - 1), embed_dims]
        self.conv_layers = nn.Sequential(
            *(
                nn.Sequential(
                    nn.Conv2d(c_in, c_out, kernel_size, stride, kernel_size // 2, bias=False),
                    nn.ReLU(),
                    nn.MaxPool2d(3, 2, 1),
                )
                for c_in, c_out in zip(channels, channels[1:])
            )
        )

    def forward(self, x: Tensor) -> tuple[Tensor, Grid]:
        """Return the tokens (B, N, D) of images (B, C, H, W), and their grid."""
        require_patch(x, 1)
        x = self.conv_layers(x)
        # (B, N, D); contiguous since sums keep the memory layout of their first term
        return x.flatten(2).transpose(1, 2).contiguous(), (int(x.shape[2]), int(x.shape[3]))


TOKENIZERS = {'patch': PatchTokenizer, 'conv': ConvTokenizer}


class CompactLayer(BaseTransformerLayer):
    """The layer of Compact Transformers; the PE joins at ``pre_norm`` only."""

    norm_name = 'pre_norm'
    attn_name = 'self_attn'

    def __init__(self, embed_dims: int, attn: nn.Module, joining: Joining, feedforward_channels: int, **kwargs):
        super().__init__(embed_dims, attn, joining, **kwargs)
        self.norm1 = build_norm(self.norm_cfg, embed_dims)
        self.linear1 = nn.Linear(embed_dims, feedforward_channels)
        self.linear2 = nn.Linear(feedforward_channels, embed_dims)

    def run(self, x: Tensor, pe: Stream, hw: Grid) -> tuple[Tensor, Stream]:
        """Run the layer, keeping all activations."""
        x, attn_input, pe = self.join(x, pe)
        x = self.norm1(x + self.drop_path(self.self_attn(attn_input, hw)))
        return x + self.drop_path(self.linear2(F.gelu(self.linear1(x)))), pe

    def join_position(self, x: Tensor, pe: Stream) -> tuple[Tensor, Tensor, Stream]:
        """Return what ``BaseTransformerLayer`` does.

        The norm of the stream also norms a PE in it.
        """
        x, seen, pe = super().join_position(x, pe)
        return self.norm1(x), seen, pe
