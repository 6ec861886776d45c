"""Text towers: torch's own encoder from scratch, and those of the library ``transformers``, BERT and its like.

    y = W norm(encoder(E[ids] + P))_[CLS]

Of ``transformers``, y is W h_[CLS], or W times the mean of h over the tokens that are no padding; h is the
encoder's last output.
"""

from collections.abc import Sequence
from types import ModuleType

import torch
from mmengine.model import BaseModule
from torch import Tensor, nn

from mmlape.errors import ConfigError, require_choice


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


def _library() -> ModuleType:
    try:
        import transformers
    except ImportError as error:
        raise ConfigError(
            "transformers, which the text tower needs, is missing: pip install 'transformers<5'"
        ) from error
    return transformers


def _loaded(kind: str, name: str, **options):
    """Return what ``AutoConfig``, ``AutoModel`` or ``AutoTokenizer`` loads without code of its own, or raise."""
    try:
        return getattr(_library(), kind).from_pretrained(name, trust_remote_code=False, **options)
    except (OSError, ValueError) as error:
        reason = ' '.join(str(error).split())[:200]
        raise ConfigError(f'transformers has no {name!r} ({reason}); give a folder, or a name on the hub') from error


class TransformersTokenizer:
    """Turn texts into rows of ids of one length by the tokenizer of a pretrained model, special tokens included.

    Args:
        name: A folder, or a name on the Hugging Face hub.
        length: Ids of a row; what is longer is cut off.
    """

    def __init__(self, name: str, length: int = 16) -> None:
        self.length = length
        self.ids = _loaded('AutoTokenizer', name)
        self.pad, self.vocab_size = self.ids.pad_token_id, len(self.ids)

    def __call__(self, texts: Sequence[str]) -> Tensor:
        """Return the ids (B, length) of texts, int64."""
        rows = self.ids(
            list(texts), padding='max_length', truncation=True, max_length=self.length, return_tensors='pt'
        )
        return rows['input_ids']


class TransformersText(BaseModule):
    """A pretrained text encoder of ``transformers``, with a linear layer to the embedding.

    Args:
        name: A folder, or a name on the Hugging Face hub. Its weights (safetensors) are the initial
            ones.
        pool: 'cls' for the first token's output, 'mean' for the mean over the tokens.
        pretrained: Whether its weights are read; False initialises the encoder at random.
        init_cfg: Of ``mmengine.model.BaseModule``.

    Raises:
        ConfigError: For another ``pool``, without the library, or if there is no such model.
    """

    def __init__(self, name: str, pool: str = 'cls', pretrained: bool = True, init_cfg: dict | None = None) -> None:
        super().__init__(init_cfg)
        require_choice('pool', pool, ('cls', 'mean'), 'TransformersText: ')
        self.name, self.pool, self.pretrained = name, pool, pretrained
        self.encoder = _library().AutoModel.from_config(_loaded('AutoConfig', name))
        if getattr(self.encoder, 'pooler', None) is not None:
            # BERT's layer for another loss, which would get no gradients
            self.encoder.pooler = None

    def build(self, vocabulary: int, length: int, pad: int, out_dims: int) -> None:
        """Check the tokenizer's vocabulary, and make the last layer.

        Raises:
            ConfigError: The tokenizer has more ids, or longer rows, than the encoder.
        """
        encoder_config = self.encoder.config
        places = getattr(encoder_config, 'max_position_embeddings', length)
        if vocabulary > encoder_config.vocab_size or length > places:
            raise ConfigError(
                f'TransformersText: {self.name} has {encoder_config.vocab_size} ids in rows of at most '
                f'{places}, the tokenizer {vocabulary} in rows of {length}; take the tokenizer of '
                'the same model'
            )
        self.pad = pad
        self.head = nn.Linear(encoder_config.hidden_size, out_dims)

    def init_weights(self) -> None:
        """Read the pretrained weights."""
        super().init_weights()
        if self.pretrained:
            options = dict(use_safetensors=True, dtype=torch.float32)
            source = _loaded('AutoModel', self.name, **options).state_dict()
            self.encoder.load_state_dict({name: source[name] for name in self.encoder.state_dict()})

    def forward(self, ids: Tensor) -> Tensor:
        """Embed texts.

        Args:
            ids: (B, L), int64.

        Returns:
            (B, out_dims), not normed.
        """
        known = ids != self.pad  # (B, L)
        # (B, L, D)
        tokens = self.encoder(input_ids=ids, attention_mask=known.long()).last_hidden_state
        if self.pool == 'cls':
            return self.head(tokens[:, 0])
        weights = known[..., None].to(tokens.dtype)
        return self.head((weights * tokens).sum(dim=1) / weights.sum(dim=1).clamp(min=1))
