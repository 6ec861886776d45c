"""The contract: what the laboratory asks of a package with models of its own, and nothing else of it.

A package offers one `Extension` by an entry point of the group ``mmlape.extensions``:

    [project.entry-points.'mmlape.extensions']
    mmlape = 'mmlape.extension:EXTENSION'

An extension is asked about every model and every config, and answers None for what is not its own.
What none answers is answered as for plain OpenMMLab. Its module is imported by every command, so it
imports torch and models inside its methods.
"""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, TypeVar

from mmlape.console.log import log
from mmlape.errors import shown

if TYPE_CHECKING:
    from torch import nn

    from mmlape.checkpoint.exact_loading import LoadReport
    from mmlape.checkpoint.opening import OpenedFile

GROUP = 'mmlape.extensions'
Answer = TypeVar('Answer')


@dataclass(frozen=True)
class PaperModel:
    """A model as the papers' tables name it."""

    # 'Seg-T-Mask/16', 'ViT-Adapter-Ti', 'DeiT-S'; the config's name if its settings are unknown, or
    # its model has no name
    name: str
    # 'DeiT-Ti', with a mark where two starts of one name differ; 'none' without a checkpoint; of a
    # model that has no name, the file's
    pretrained: str = '–'
    method: str = '–'  # what differs between models of one name; a dash if the model has no name
    # whether it is the one that its paper starts from: the baseline of the others of this name
    plain: bool = False

    @property
    def named(self) -> bool:
        """Whether the settings are known, and the model has a name."""
        return self.method != '–'


@dataclass(frozen=True)
class Provenance:
    """Whose pretraining a file is of."""

    source: str  # "DeiT's published weights"
    # whether a file of unknown provenance is of another one
    distinct: bool = False


@dataclass(frozen=True)
class Quotation:
    """The figures of one paper for a config."""

    paper: str  # 'LaPE (ICCV 2023)'
    runs: str  # how many runs a figure is of, as the paper says it
    dataset: str
    figures: dict[str, str]  # as the paper prints them, ``{metric: text}``
    note: str = ''  # what keeps a figure from being what the paper says; empty if nothing does

    @property
    def short(self) -> str:
        """The paper without conference and year."""
        return self.paper.partition(' (')[0]


@dataclass(frozen=True)
class PaperFigures:
    """What papers print of a config's model or of an arm of a study."""

    # parameters, flops: exact numbers, for one image of ``size``, (height, width); None if not
    # given
    parameters: int | None = None
    flops: int | None = None
    size: tuple[int, ...] = ()
    # 'Iterations' or 'Epochs', and how many; None if not given
    length: tuple[str, int] | None = None
    batch: int | None = None  # the recipe's total batch
    quotations: tuple[Quotation, ...] = ()
    # the papers' figures for fractions of the training images
    fractions: dict[Fraction, Quotation] = field(default_factory=dict)

    @property
    def results(self) -> dict[str, str]:
        """The papers' final figures by metric.

        Another paper than an extension's main one is named, as in '80.00; 80.1 (DPN)'.
        """
        texts: dict[str, list[str]] = {}
        mains = [one.main_paper for one in extensions()]
        for quotation in self.quotations:
            source = '' if quotation.short in mains else f' ({quotation.short})'
            for metric, figure in quotation.figures.items():
                texts.setdefault(metric, []).append(figure + source)
        return {metric: '; '.join(figures) for metric, figures in texts.items()}

    def at_fraction(self, share: Fraction) -> 'PaperFigures':
        """Return them with the papers' figures for a fraction of the images instead of those for all."""
        if share == 1:
            return self
        return replace(self, quotations=(self.fractions[share],) if share in self.fractions else ())


class Extension:
    """The answers of plain OpenMMLab; a package overrides those that its models need otherwise.

    Attributes:
        counted: Beginnings of the dotted names of modules whose source decides results: what a run
            has imported of them is part of its identity.
        registries: Modules by the name of one of MMEngine's registries: each offers the names in
            its ``__all__`` to the registry of scope ``mmlape``, and imports one on its first use.
        commands: Sub-commands of `mmlape`, with their module and a line of help.
        logged: Measurements by name: `train --log-NAME N` adds the hook that is named here, with
            ``interval=N``; then a line of help.
        arm_keys: Keys of an arm in a study file that the laboratory does not read: `studies.Arm.extra`.
        metrics: Keys of metrics by the name that tables and papers have for them.
        on_pretraining: What to advise where arms start from different pretrainings; a sentence
            without its full stop.
        main_paper: The paper whose figures need no name in tables.
        on_figures: What to know of papers' figures on a dataset, by its name.
    """

    counted: tuple[str, ...] = ()
    registries: Mapping[str, tuple[str, ...]] = {}
    commands: Mapping[str, tuple[str, str]] = {}
    logged: Mapping[str, tuple[str, str]] = {}
    arm_keys: tuple[str, ...] = ()
    metrics: Mapping[str, str] = {}
    on_pretraining: str = ''
    main_paper: str = ''
    on_figures: Mapping[str, str] = {}

    def load_model(
        self, model: 'nn.Module', file: 'OpenedFile', *, strict: bool, resize: bool, fresh: Sequence[str]
    ) -> 'LoadReport | None':
        """Load weights into a complete model, to resume, to test or to start from; None leaves it to the laboratory.

        Args:
            model: The model, without the wrapper of distributed training.
            file: What was read of the weights.
            strict: Refuse every difference; otherwise differences are only reported.
            resize: Fit what depends on the size of the images, where a run starts from the file.
            fresh: Beginnings of the names of tensors that keep their initial values.

        Raises:
            CheckpointError: The file does not fit.
        """
        return None

    def metadata(self, model: 'nn.Module') -> dict[str, Any]:
        """Return what checkpoints record in ``meta`` because names and shapes do not tell it: plain values."""
        return {}

    def check_initialised(self, model: 'nn.Module') -> None:
        """Log warnings about a new model whose initial weights are loaded."""

    def position_parameters(self, model: 'nn.Module') -> Collection[str]:
        """Return the names of the parameters that ``position_decay_mult`` and ``position_lr_mult`` are for."""
        return ()

    def provenance(self, name: str, digest: str | None, content: Mapping[str, Any] | None = None) -> Provenance | None:
        """Say whose pretraining a file is of; None if it is not known.

        Args:
            name: Its name.
            digest: Its SHA-256; None if that is unknown.
            content: What it holds; None if it is not to be read.
        """
        return None

    def paper_model(
        self, name: str, settings: Mapping[str, Any], loads: Sequence[str], weights: str | None
    ) -> PaperModel | None:
        """Return what papers call the model of a run; None if they do not.

        Args:
            name: What to call a model that has no name.
            settings: Of its run, as `mmlape.lab.runs.identity.settings` returns them.
            loads: The keys of the config that name weights.
            weights: The names of their files; None without any.
        """
        return None

    def paper_figures(self, config: str) -> PaperFigures | None:
        """Return what papers print of the model of a config, by the config's name; None if nothing."""
        return None

    def weights_source(self, path: str) -> str | None:
        """Return how a file of starting weights, which is not there, comes to be; None if it is not known."""
        return None

    def exporting(self) -> AbstractContextManager[None]:
        """Compute models, inside the context, as an ONNX graph is to have them."""
        return nullcontext()


@cache
def extensions() -> tuple[Extension, ...]:
    """Return the extensions of the installed packages, by the names of their entry points, this package's last.

    One that cannot be imported is left out with a warning: the laboratory does without it.
    """
    found = []
    for point in sorted(entry_points(group=GROUP), key=lambda one: (_is_own(one.value), one.name)):
        try:
            found.append(point.load())
        except ImportError as error:
            log(f'extension {point.name} ({point.value}): {shown(error)}', logging.WARNING)
    return tuple(found)


def _is_own(value: str) -> bool:
    return value.startswith(f'{__name__.partition(".")[0]}.')


def advice_on_pretraining() -> str:
    """Return what the extensions advise where arms start from different pretrainings, after a full stop."""
    return ''.join(f'. {one.on_pretraining}' for one in extensions() if one.on_pretraining)


def first_answer(question: Callable[[Extension], Answer | None]) -> Answer | None:
    """Return the first answer of the extensions that is not None; None if there is none."""
    answers = (question(one) for one in extensions())
    return next((answer for answer in answers if answer is not None), None)
