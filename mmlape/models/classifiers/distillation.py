"""Hard distillation of DeiT (arXiv 2012.12877, Eq. 3).

The distillation token learns the label that a teacher gives.

    loss = 1/2 CE(class head, label) + 1/2 CE(distillation head, argmax teacher)

At test time the heads' scores are averaged. Needs mmpretrain; configs import it by
``custom_imports``.
"""

import torch
import torch.nn.functional as F
from mmpretrain.models.classifiers import ImageClassifier
from mmpretrain.models.heads import DeiTClsHead
from mmpretrain.structures import DataSample
from torch import Tensor, nn

from mmlape.checkpoint import load_model
from mmlape.errors import ConfigError
from mmlape.registry import MODELS


@MODELS.register_module()
class DistilledClsHead(DeiTClsHead):
    """A linear head on each of the two tokens; mmpretrain's, which only tests, made trainable."""

    def loss(self, feats: tuple, data_samples: list[DataSample], teacher_score: Tensor) -> dict[str, Tensor]:
        """Compute both halves of the loss from two tokens, 2 x (B, D), and the teacher's scores (B, classes)."""
        cls_token, dist_token = self.pre_logits(feats)
        by_label = self._get_loss(self.layers.head(cls_token), data_samples)['loss']
        by_teacher = F.cross_entropy(self.layers.head_dist(dist_token), teacher_score.argmax(dim=1))
        return dict(loss_cls=0.5 * by_label, loss_dist=0.5 * by_teacher)


@MODELS.register_module()
class DistilledImageClassifier(ImageClassifier):
    """mmpretrain's classifier with a frozen teacher that is neither trained nor saved.

    Args:
        teacher: Config of a classifier of mmpretrain, or of timm through ``type='TimmClassifier'``;
            it sees the same normalised and mixed images, and must know the same classes.
        teacher_checkpoint: Its weights; None if ``teacher`` loads them itself
            (``pretrained=True``).

    Raises:
        ConfigError: Without a teacher.
        CheckpointError: From ``init_weights``, if the weights do not fit the teacher.
    """

    def __init__(self, *args, teacher: dict, teacher_checkpoint: str | None = None, **kwargs):
        super().__init__(*args, **kwargs)
        if not teacher:
            raise ConfigError('distillation needs model.teacher, the config of a trained classifier')
        # a list keeps it out of the state dict
        self._teacher = [MODELS.build(teacher).eval().requires_grad_(False)]
        self.teacher_checkpoint = teacher_checkpoint

    def init_weights(self) -> None:
        """Load the teacher as well."""
        super().init_weights()
        if self.teacher_checkpoint:
            # mmpretrain wraps a timm model, whose public files know nothing of the wrapper
            wrapped = type(self.teacher).__name__ == 'TimmClassifier'
            load_model(self.teacher.model if wrapped else self.teacher, self.teacher_checkpoint)

    @property
    def teacher(self) -> nn.Module:
        """The frozen teacher."""
        return self._teacher[0]

    def loss(self, inputs: Tensor, data_samples: list[DataSample]) -> dict[str, Tensor]:
        """Compute the loss of a batch (B, 3, H, W)."""
        with torch.no_grad():
            scores = self.teacher.to(inputs.device)(inputs, mode='tensor')
        return self.head.loss(self.extract_feat(inputs), data_samples, teacher_score=scores)
