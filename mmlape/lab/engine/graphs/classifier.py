"""Classifiers as graphs: the scores of all classes."""

import torch
from mmpretrain.models import ImageClassifier
from mmpretrain.structures import DataSample
from torch import Tensor, nn

from mmlape.lab.engine.graphs.base import ExportedModel
from mmlape.lab.engine.graphs.input import Input
from mmlape.lab.engine.graphs.session import FLOAT, Graph


class ExportedClassifier(ExportedModel):
    """A classifier of MMPretrain up to its ``scores``, (1, classes), which sum to 1 where its head has a softmax."""

    task = 'classification'
    outputs = ('scores',)

    @staticmethod
    def fits(model: nn.Module) -> bool:
        """Return whether it is a classifier."""
        return isinstance(model, ImageClassifier)

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        """Return the scores."""
        features = self.model.extract_feat(self.given.normalise(image))
        return (torch.stack([sample.pred_score for sample in self.model.head.predict(features)]),)

    def predicted(self, image: Tensor) -> tuple[Tensor, ...]:
        """Return MMPretrain's scores."""
        (sample,) = self.model.predict(self.given.normalise(image), [DataSample()])
        return (sample.pred_score[None],)

    @staticmethod
    def declared(model: nn.Module, graph: Graph) -> dict[str, tuple[str, tuple]]:
        """Return a score for each class."""
        return dict(scores=(FLOAT, (1, len(graph.classes))))

    @staticmethod
    def install(model: nn.Module, graph: Graph, given: Input) -> None:
        """Replace ``predict``."""

        def predict(inputs: Tensor, data_samples: list, **kwargs) -> list:
            (scores,) = graph.of_batch(inputs, given)
            for sample, row in zip(data_samples, scores):
                sample.set_pred_score(row).set_pred_label(row.argmax())
            return data_samples

        model.predict = predict


EXPORTED = ExportedClassifier
