"""Classifiers as graphs: the scores of all classes."""

import torch
from mmpretrain.models import ClsHead, ImageClassifier
from mmpretrain.structures import DataSample
from torch import Tensor, nn

from mmlape.lab.export.graphs import Exported, Outputs
from mmlape.lab.export.graphs.session import FLOAT, Graph


class ExportedClassifier(Exported):
    """A classifier of MMPretrain up to its ``scores``, (B, classes), which sum to 1 where its head has a softmax."""

    task = 'classification'
    outputs = ('scores',)

    @staticmethod
    def fits(model: nn.Module) -> bool:
        """Return whether it is a classifier."""
        return isinstance(model, ImageClassifier)

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        """Return the scores."""
        features, head = self.model.extract_feat(self.given.normalise(images)), self.model.head
        if _own(head, 'predict') is _own(head, '_get_predictions') is ClsHead:
            return (head(features).softmax(1),)  # what it does, without a loop over the images
        return (torch.stack([sample.pred_score for sample in head.predict(features)]),)

    def predicted(self, images: Tensor) -> tuple[Tensor, ...]:
        """Return MMPretrain's scores."""
        samples = self.model.predict(self.given.normalise(images), [DataSample() for _ in images])
        return (torch.stack([sample.pred_score for sample in samples]),)

    @staticmethod
    def declared(model: nn.Module, graph: Graph) -> dict[str, tuple[str, tuple]]:
        """Return a score for each class."""
        return dict(scores=(FLOAT, (len(graph.classes),)))

    @staticmethod
    def install(model: nn.Module, outputs: Outputs) -> None:
        """Replace ``predict``."""

        def predict(inputs: Tensor, data_samples: list, **kwargs) -> list:
            (scores,) = outputs(inputs)
            for sample, row in zip(data_samples, scores):
                sample.set_pred_score(row).set_pred_label(row.argmax())
            return data_samples

        model.predict = predict


def _own(head: nn.Module, name: str) -> type:
    """Return the class that a head has a method of."""
    return next(base for base in type(head).__mro__ if name in vars(base))


EXPORTED = (ExportedClassifier,)
