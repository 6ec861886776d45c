"""Log what the layers do with the position embedding while a model trains (MPVG, AAAI 2025, Figure 4)."""

import copy

from mmengine.hooks import Hook
from mmengine.model import is_model_wrapper

from mmlape.errors import ConfigError
from mmlape.models.base.backbone import BaseBackbone
from mmlape.models.base.balance import measure_balance
from mmlape.registry import HOOKS

TAG = 'pe_balance/'


@HOOKS.register_module()
class PEBalanceHook(Hook):
    """Write ``pe_balance/<number>`` to the visualiser's back ends, see ``mmlape.models.base.balance``.

    Before an iteration, the first process runs the backbone once more, on the first images of its
    batch as they would be tested: without mixing, in evaluation mode, without gradients. Weights,
    batch statistics and random numbers stay as they are.

    Args:
        interval: Iterations between two measurements; the first iteration is measured too.
        images: How many images of the batch.

    Raises:
        ConfigError: If a number is not positive, or the backbone is not of mmlape.
    """

    changes_results = False
    priority = 'NORMAL'
    counts = {'interval': 'log'}

    def __init__(self, interval: int = 50, images: int = 4) -> None:
        if min(interval, images) < 1:
            raise ConfigError(f'PEBalanceHook: interval and images must be 1 or more, not {interval} and {images}')
        self.interval, self.images = interval, images

    def before_train(self, runner) -> None:
        """Check that there is something to measure."""
        self.model = runner.model.module if is_model_wrapper(runner.model) else runner.model
        self.backbone = getattr(self.model, 'backbone', None)
        if not isinstance(self.backbone, BaseBackbone):
            raise ConfigError(f'PEBalanceHook measures a backbone of mmlape, not {type(self.backbone).__name__}')

    def before_train_iter(self, runner, batch_idx: int, data_batch=None) -> None:
        """Measure the model that the iteration starts from."""
        if runner.rank or runner.iter % self.interval:
            return
        # copies, since preprocessors write into what they get
        few = {key: copy.deepcopy(data_batch[key][: self.images]) for key in ('inputs', 'data_samples')}
        images = self.model.data_preprocessor(few, False)['inputs']
        numbers = measure_balance(self.backbone, images).scalars()
        runner.visualizer.add_scalars({f'{TAG}{name}': value for name, value in numbers.items()}, step=runner.iter + 1)
