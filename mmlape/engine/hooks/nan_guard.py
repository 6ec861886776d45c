"""Stop a run at the first iteration whose loss is NaN or infinite, on every process at once."""

import math

from mmengine.dist import all_gather_object
from mmengine.hooks import Hook

from mmlape.engine.distributed.processes import any_process
from mmlape.errors import NotFiniteError
from mmlape.registry import HOOKS
from mmlape.runs.record import checkpoints


@HOOKS.register_module()
class NaNGuardHook(Hook):
    """Raise NotFiniteError before anything is saved or logged from the broken iteration."""

    changes_results = False
    priority = 'HIGHEST'

    def after_train_iter(self, runner, batch_idx: int, data_batch=None, outputs: dict | None = None) -> None:
        """Check the summed loss, which is finite only if every part is."""
        if not outputs or 'loss' not in outputs:
            return
        device = outputs['loss'].device
        if not any_process(not math.isfinite(float(outputs['loss'].detach())), device):
            return
        raise NotFiniteError(self._message(runner, outputs))

    @staticmethod
    def _message(runner, outputs: dict) -> str:
        values = {key: float(value.detach()) for key, value in outputs.items() if 'loss' in key}
        gathered = all_gather_object(values)
        bad = []
        for rank, losses in enumerate(gathered):
            where = f' (process {rank})' if len(gathered) > 1 else ''
            bad += [f'{key} = {value}{where}' for key, value in losses.items() if not math.isfinite(value)]
        kept = checkpoints(runner.work_dir)
        last = f'the last good checkpoint is {kept[0]}' if kept else 'no checkpoint had been written'
        return (
            f'the loss is not finite at iteration {runner.iter + 1}: {", ".join(bad)}; {last}. '
            'A lower learning rate or gradient clipping may help; so may --amp bf16 instead of fp16'
        )
