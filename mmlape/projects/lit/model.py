"""Locked-image text tuning, LiT (Zhai et al., CVPR 2022, arXiv 2111.07991).

Only the text tower learns.

    x = f(image) / |f(image)|,  y = g(text) / |g(text)|,  l = exp(t) x . y

f is frozen, g and t are trained; at test time the classes' names, put into templates, are the
classifier:

    label = argmax_c x . w_c,  w_c = mean_k y(template_k(c)), normed again

The losses are over the batch of all processes,

    softmax (CLIP, LiT):  L = -1/2N sum_i [log softmax_j(l_ij)_i + log softmax_j(l_ji)_i]
    sigmoid (SigLIP):     L = -1/N sum_ij log sigmoid(z_ij (l_ij + b)),  z_ij = 1 where i = j, else -1

Each process computes the rows of its own pairs against the pairs of all processes; the mean over the processes, which
DDP takes of the gradients, is the loss of one process with all pairs.
"""

import math
import re
import runpy
from collections.abc import Iterator, Sequence
from pathlib import Path

import mmpretrain
import torch
import torch.nn.functional as F
from mmengine.dist import get_rank, get_world_size
from mmengine.model import BaseModel
from mmpretrain.datasets.categories import CIFAR100_CATEGORIES, IMAGENET_SIMPLE_CATEGORIES
from mmpretrain.structures import DataSample
from torch import Tensor, nn
from torch.distributed.nn.functional import all_gather

from mmlape.errors import ConfigError, require_choice
from mmlape.projects.lit.text import TransformersTokenizer
from mmlape.projects.lit.tokenizer import WordPieceTokenizer
from mmlape.registry import MODELS

EPS = 1e-8
LOSSES = ('softmax', 'sigmoid')
TEXTS = 'gt_caption'
"""The field of a data sample with its caption: a text to train on, a list of texts to evaluate."""
CHUNK = 512  # texts that are embedded at a time
CLASSES = {'imagenet': IMAGENET_SIMPLE_CATEGORIES, 'cifar100': CIFAR100_CATEGORIES}
"""CLIP's names of classes."""
TEMPLATES = ('openai_imagenet', 'openai_imagenet_sub', 'openai_cifar100')
"""CLIP's templates: 80, the best seven of them, and those of CIFAR-100."""


class LiT(BaseModel):
    """A frozen image tower, a text tower and a temperature.

    In evaluation a data sample gets ``image_embedding`` (D,), ``text_embedding`` (captions, D) if
    it has captions, and, if the model has ``classes``, ``pred_score`` and ``pred_label``, so that
    metrics of classifiers work. The image tower stays in evaluation mode and gets no gradients; its
    weights come by its ``init_cfg``, or all come by ``load_from``.

    Args:
        backbone: The image tower, whose last output is (B, width): ``out_type='cls_token'`` or
            'avg_featmap'.
        text: The text tower, with `TextTransformer`'s two methods ``build`` and ``forward``.
        tokenizer: Arguments of `WordPieceTokenizer`: ``vocab_file``, ``vocab_size`` and ``length``;
            or, with ``name``, of `TransformersTokenizer`.
        width: Width of the image tower's output.
        embed_dims: None to compare in the image tower's own space; else the width of a common
            space, to which a trained linear layer maps the images too.
        loss: 'softmax' or 'sigmoid'.
        temperature: Initial t, of exp(t).
        bias: Initial b of the sigmoid loss.
        classes: Names of the classes of a zero-shot evaluation, or 'imagenet' or 'cifar100' for
            CLIP's names.
        templates: Texts with ``{}`` in the place of a name, or one of ``TEMPLATES``.
        data_preprocessor: Of mmpretrain's classifiers, with the image tower's mean and standard
            deviation.
        init_cfg: Of ``mmengine.model.BaseModel``.

    Raises:
        ConfigError: For unknown names, and templates without a place for the name.
        DataError: From `init_weights` or the first text, if the vocabulary is missing or of another
            size.
    """

    def __init__(
        self,
        backbone: dict,
        text: dict,
        tokenizer: dict,
        width: int,
        embed_dims: int | None = None,
        loss: str = 'softmax',
        temperature: float = math.log(10),
        bias: float = -2.71,
        classes: str | Sequence[str] | None = None,
        templates: str | Sequence[str] = ('a photo of a {}',),
        data_preprocessor: dict | None = None,
        init_cfg: dict | None = None,
    ) -> None:
        require_choice('loss', loss, LOSSES, 'LiT: ')
        preprocessor = {'type': 'mmpretrain.ClsDataPreprocessor', **(data_preprocessor or {})}
        super().__init__(data_preprocessor=preprocessor, init_cfg=init_cfg)
        self.classes = _named(classes, CLASSES, 'classes')
        self.templates = _templates(templates)
        self.tokenizer = (TransformersTokenizer if 'name' in tokenizer else WordPieceTokenizer)(**tokenizer)
        self.backbone = MODELS.build(backbone).eval().requires_grad_(False)
        self.text = MODELS.build(text)
        shape = self.tokenizer.vocab_size, self.tokenizer.length, self.tokenizer.pad
        self.text.build(*shape, embed_dims or width)
        self.image_head = nn.Linear(width, embed_dims) if embed_dims else None
        self.temperature = nn.Parameter(torch.full((1,), float(temperature)))
        self.bias = nn.Parameter(torch.full((1,), float(bias))) if loss == 'sigmoid' else None
        self._classifier: Tensor | None = None

    def init_weights(self) -> None:
        """Check the vocabulary as well, before the first step."""
        _ = self.tokenizer.ids
        super().init_weights()

    def train(self, mode: bool = True) -> 'LiT':
        """Switch the text tower; the image tower always evaluates."""
        super().train(mode)
        self.backbone.eval()
        self._classifier = None
        return self

    def extract_feat(self, inputs: Tensor) -> Tensor:
        """Return the frozen features (B, width) of images (B, 3, H, W).

        Raises:
            ConfigError: The image tower's output is no vector.
        """
        with torch.no_grad():
            features = self.backbone(inputs)
        features = features[-1] if isinstance(features, (tuple, list)) else features
        if not isinstance(features, Tensor) or features.dim() != 2:
            raise ConfigError("LiT: model.backbone must return vectors: out_type='cls_token' or 'avg_featmap'")
        return features

    def embed_images(self, inputs: Tensor) -> Tensor:
        """Return the embeddings (B, D) of images (B, 3, H, W), of length 1."""
        features = self.extract_feat(inputs)
        return _normed(self.image_head(features) if self.image_head else features)

    def embed_texts(self, texts: Sequence[str]) -> Tensor:
        """Return the embeddings (B, D) of texts, of length 1."""
        ids = self.tokenizer(texts).to(self.temperature.device)
        return torch.cat([_normed(self.text(part)) for part in ids.split(CHUNK)])

    def forward(
        self, inputs: Tensor, data_samples: list[DataSample] | None = None, mode: str = 'tensor'
    ) -> Tensor | dict[str, Tensor] | list[DataSample]:
        """Compute embeddings ('tensor'), the loss ('loss') or predictions ('predict') of images (B, 3, H, W)."""
        if mode == 'tensor':
            return self.embed_images(inputs)
        if mode == 'loss':
            return self.loss(inputs, data_samples or [])
        return self.predict(inputs, data_samples)

    def loss(self, inputs: Tensor, data_samples: Sequence[DataSample]) -> dict[str, Tensor]:
        """Compute the loss of images and their captions.

        Raises:
            ConfigError: A sample has no caption, or several.
        """
        texts = [sample.get(TEXTS) for sample in data_samples]
        if not texts or not all(isinstance(text, str) for text in texts):
            raise ConfigError(
                'LiT trains on one caption an image: end the pipeline with mmlape.RandomCaption '
                f"and PackInputs(algorithm_keys=['{TEXTS}'])"
            )
        images, embedded = self.embed_images(inputs).float(), self.embed_texts(texts).float()
        scale = self.temperature.exp()
        if self.bias is None:
            return dict(loss=softmax_loss(images, embedded, scale))
        return dict(loss=sigmoid_loss(images, embedded, scale, self.bias))

    def predict(self, inputs: Tensor, data_samples: list[DataSample] | None = None) -> list[DataSample]:
        """Put embeddings and, with classes, scores into the data samples."""
        images = self.embed_images(inputs)
        samples = [DataSample() for _ in images] if data_samples is None else data_samples
        captions = [_listed(sample.get(TEXTS)) for sample in samples]
        texts = [text for of_image in captions for text in of_image]
        embedded: Iterator[Tensor] = iter(())
        if texts:
            counts = [len(of_image) for of_image in captions]
            embedded = iter(self.embed_texts(texts).split(counts))
        scores = None
        if self.classes:
            labels = [int(sample.gt_label.max()) for sample in samples if 'gt_label' in sample]
            if labels and max(labels) >= len(self.classes):
                raise ConfigError(
                    f'LiT: the data have the label {max(labels)}, but model.classes has '
                    f'{len(self.classes)} names: set it to the names of the classes in the order '
                    'of the labels'
                )
            scores = (self.temperature.exp() * images @ self.class_embeddings().T).softmax(dim=1)
        for index, sample in enumerate(samples):
            sample.set_field(images[index], 'image_embedding')
            if texts:
                sample.set_field(next(embedded), 'text_embedding')
            if scores is not None:
                sample.set_pred_score(scores[index]).set_pred_label(scores[index].argmax())
        return samples

    @torch.no_grad()
    def class_embeddings(self) -> Tensor:
        """Return the classifier (classes, D).

        The mean over the templates of the classes' embeddings, normed again. It is computed once
        between two switches of `train`.

        Raises:
            ConfigError: The model has no classes.
        """
        if not self.classes:
            raise ConfigError('LiT: a zero-shot evaluation needs model.classes, the names in the order of the labels')
        if self._classifier is None:
            names = [canonical(name, keep=',') for name in self.classes]
            texts = [template.replace('{}', name) for name in names for template in self.templates]
            embedded = self.embed_texts(texts).unflatten(0, (len(names), len(self.templates)))
            classifier = _normed(embedded.mean(dim=1))
            if self.training:
                return classifier
            self._classifier = classifier
        return self._classifier


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


def canonical(text: str, keep: str = '') -> str:
    """Return a text in lower case, '_' as a space, without punctuation but for ``keep``, single spaces between words.

    The place ``{}`` of a template stays.
    """
    parts = (re.sub(rf'[^\w\s{re.escape(keep)}]', '', part.replace('_', ' ')) for part in text.split('{}'))
    return ' '.join('{}'.join(parts).lower().split())


def _normed(x: Tensor) -> Tensor:
    return x / (x.norm(dim=-1, keepdim=True) + EPS)


def _listed(texts: str | Sequence[str] | None) -> list[str]:
    return [texts] if isinstance(texts, str) else list(texts or ())


def _named(value: str | Sequence | None, known: dict, key: str) -> tuple:
    """Return a list of a config, or the one that a name stands for."""
    if isinstance(value, str):
        if value not in known:
            raise ConfigError(f'LiT: unknown {key}={value!r}; give a list, or one of: {", ".join(known)}')
        value = known[value]
    return tuple(value or ())


def _templates(value: str | Sequence[str]) -> tuple[str, ...]:
    """Return the templates as texts with ``{}``."""
    templates = _named(value, _clips_templates() if value in TEMPLATES else dict.fromkeys(TEMPLATES), 'templates')
    texts = tuple(map(canonical, templates))
    bad = [text for text in texts if '{}' not in text]
    if bad or not texts:
        raise ConfigError(f'LiT: each of templates needs {{}} in the place of the class, which {bad or "none"} lacks')
    return texts


def _clips_templates() -> dict[str, list[str]]:
    """Read mmpretrain's copy of CLIP's templates, functions of the name, from its file.

    The package around that file cannot be imported without ``transformers``, which the templates do
    not need.
    """
    file = Path(mmpretrain.__file__).parent / 'models' / 'multimodal' / 'clip' / 'utils.py'
    values = runpy.run_path(str(file))
    keys = {'openai_imagenet_sub': 'OPENAI_IMAGENET_PROMPT_SUB'}
    return {
        name: [template('{}') for template in values[keys.get(name, f'{name.upper()}_PROMPT')]] for name in TEMPLATES
    }
