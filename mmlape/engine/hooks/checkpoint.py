"""MMEngine's checkpoint hook, changed so that every checkpoint can be resumed and none is lost to the next."""

import os

from mmengine.dist import is_main_process
from mmengine.hooks import CheckpointHook as _CheckpointHook
from mmengine.optim import OptimWrapper, OptimWrapperDict

from mmlape.registry import HOOKS


@HOOKS.register_module()
class CheckpointHook(_CheckpointHook):
    """Save, then delete the old checkpoint; refuse weights that are not finite.

    A checkpoint holds no gradients. One that is due between two accumulated iterations is saved after the step of the
    optimiser that they lead to.
    """

    changes_results = False
    deferred = False

    def after_train_iter(self, runner, *args, **kwargs) -> None:
        """Save if a checkpoint is due or was deferred until now."""
        super().after_train_iter(runner, *args, **kwargs)
        if self.deferred and _at_step(runner.optim_wrapper):
            self._save_checkpoint(runner)

    def _save_checkpoint_with_step(self, runner, step: int, meta: dict) -> None:
        self.deferred = not self.by_epoch and not _at_step(runner.optim_wrapper)
        if self.deferred:
            return
        runner.check_finite()
        limit, stale = self.max_keep_ckpts, []
        if limit > 0 and (not self.keep_ckpt_ids or self.keep_ckpt_ids[-1] != step):
            kept = [*self.keep_ckpt_ids, step]
            stale, kept = kept[:-limit], kept[-limit:]
            self.keep_ckpt_ids.clear()
            self.keep_ckpt_ids.extend(kept)
            runner.message_hub.update_info('keep_ckpt_ids', kept)
        self.max_keep_ckpts = -1
        try:
            super()._save_checkpoint_with_step(runner, step, meta)
        finally:
            self.max_keep_ckpts = limit
        if is_main_process():
            for old in stale:
                path = os.path.join(self.out_dir, self.filename_tmpl.format(old))
                if os.path.isfile(path):
                    os.remove(path)


def _at_step(optim_wrapper: OptimWrapper) -> bool:
    """Return whether no gradients are accumulated; several optimisers are not followed."""
    return isinstance(optim_wrapper, OptimWrapperDict) or optim_wrapper.should_update()
