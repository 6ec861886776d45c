"""Compile the backbone, whose graph has no breaks; heads, whose shapes follow the data, stay as they are."""

from mmengine.hooks import Hook
from mmengine.model import is_model_wrapper

from mmlape.errors import ConfigError
from mmlape.registry import HOOKS


@HOOKS.register_module()
class CompileBackboneHook(Hook):
    """Apply the configuration's ``compile_backbone``: True, or options of ``torch.compile``.

    The module is compiled in place, so no name in a checkpoint changes. Shapes are dynamic by default: the first two
    or three image sizes compile, the others reuse that.
    """

    changes_results = False

    def before_run(self, runner) -> None:
        """Mark the backbone; its first forward pass compiles it.

        Raises:
            ConfigError: ``compile_backbone`` is neither a bool nor options, or the model has no backbone.
        """
        options = runner.cfg.get('compile_backbone')
        if options is None or options is False:
            return
        options = {} if options is True else options
        model = runner.model.module if is_model_wrapper(runner.model) else runner.model
        if not isinstance(options, dict):
            raise ConfigError(f'compile_backbone={options!r}: give True, or a dict of options of torch.compile')
        if not hasattr(model, 'backbone'):
            raise ConfigError(f'compile_backbone: {type(model).__name__} has no backbone')
        model.backbone.compile(**{'dynamic': True, **options})
        runner.logger.info('the backbone is compiled in its first iterations, which take minutes')
