"""MMEngine's checkpoint hook, changed to delete an old checkpoint only after the new one is written."""

import os

from mmengine.dist import is_main_process
from mmengine.hooks import CheckpointHook as _CheckpointHook

from mmlape.registry import HOOKS


@HOOKS.register_module()
class CheckpointHook(_CheckpointHook):
    """Save, then delete; refuse weights that are not finite."""

    changes_results = False

    def _save_checkpoint_with_step(self, runner, step: int, meta: dict) -> None:
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
