"""A Transformer encoder of texts, by torch's own layers.

The [CLS] token's output, mapped linearly to the embedding. y = W norm(encoder(E[ids] + P))_[CLS]
"""

import torch
from mmengine.model import BaseModule
from torch import Tensor, nn


class TextTransformer(BaseModule):
    """A text tower to train from scratch.

    By default of BERT-base's size, but with norms before the branches.

    Args:
        embed_dims: Width D.
        num_layers: Number of layers.
        num_heads: Heads of an attention.
        feedforward_channels: Width of the feed-forward network; by default 4 D.
        drop_rate: Dropout of tokens, attention and branches.
        init_cfg: Of ``mmengine.model.BaseModule``.
    """

    pe_names = ('pos_embed',)  # position encodings do not decay unless a config says so

    def __init__(
        self,
        embed_dims: int = 768,
        num_layers: int = 12,
        num_heads: int = 12,
        feedforward_channels: int | None = None,
        drop_rate: float = 0.0,
        init_cfg: dict | None = None,
    ) -> None:
        super().__init__(init_cfg)
        self.embed_dims = embed_dims
        layer = nn.TransformerEncoderLayer(
            embed_dims,
            num_heads,
            feedforward_channels or 4 * embed_dims,
            drop_rate,
            activation='gelu',
            batch_first=True,
            norm_first=True,
        )
        self.encoder = nn.TransformerEncoder(layer, num_layers, nn.LayerNorm(embed_dims), enable_nested_tensor=False)
        self.drop = nn.Dropout(drop_rate)

    def build(self, vocabulary: int, length: int, pad: int, out_dims: int) -> None:
        """Add what follows from the tokeniser and the image tower.

        Args:
            vocabulary: Number of ids.
            length: Ids of a text.
            pad: The id of padding, which no token attends to.
            out_dims: Width of the embedding.
        """
        self.pad = pad
        self.token_embed = nn.Embedding(vocabulary, self.embed_dims)
        self.pos_embed = nn.Parameter(torch.zeros(1, length, self.embed_dims))
        self.head = nn.Linear(self.embed_dims, out_dims)

    def init_weights(self) -> None:
        """Give each layer random values of its own: torch copies the first one's."""
        super().init_weights()
        if self.init_cfg:
            return
        for module in self.modules():
            if isinstance(module, nn.MultiheadAttention):
                module._reset_parameters()
            elif isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)
        for table in (self.token_embed.weight, self.pos_embed):
            nn.init.normal_(table, std=0.02)

    def forward(self, ids: Tensor) -> Tensor:
        """Embed texts.

        Args:
            ids: (B, L), int64.

        Returns:
            (B, out_dims), not normed.
        """
        tokens = self.drop(self.token_embed(ids) + self.pos_embed[:, : ids.shape[1]])  # (B, L, D)
        return self.head(self.encoder(tokens, src_key_padding_mask=ids == self.pad)[:, 0])
