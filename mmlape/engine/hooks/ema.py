"""An average of the weights that is kept beside the plain ones."""

from mmengine.hooks import EMAHook, Hook

from mmlape.registry import HOOKS


@HOOKS.register_module()
class KeptEMAHook(EMAHook):
    """MMEngine's ``EMAHook`` for recipes that evaluate the plain weights, such as CeiT's.

    Checkpoints have the plain weights as the model's, and the average under ``state_dict_ema``, timm's name.
    """

    before_val_epoch, after_val_epoch = Hook.before_val_epoch, Hook.after_val_epoch
    before_test_epoch, after_test_epoch = Hook.before_test_epoch, Hook.after_test_epoch

    def before_save_checkpoint(self, runner, checkpoint: dict) -> None:
        """Add the average."""
        checkpoint['state_dict_ema'] = self.ema_model.state_dict()

    def after_load_checkpoint(self, runner, checkpoint: dict) -> None:
        """Resume the average; otherwise it begins as the weights that are loaded."""
        if runner._resume and 'state_dict_ema' in checkpoint:
            self.ema_model.load_state_dict(checkpoint['state_dict_ema'])
        else:
            super().after_load_checkpoint(runner, checkpoint)
