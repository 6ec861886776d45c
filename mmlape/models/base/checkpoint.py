r"""What the checkpoint files of a backbone look like, and how they fit a model: an object that the backbone names.

    class MyBackbone(BaseBackbone):
        checkpoint_adapter = CheckpointAdapter(signs=(r'stem\.0\.weight', r'stages\.0\.attn\.qkv\.'))

An adapter has no state. Methods get the class of the backbone (``model_class``) where there is no model yet,
else the model.

    RecognisesFiles    layouts, whose files they are, and layouts to write
    RecordsModels      what files record of a model
    FindsConfigs       the configuration of a file's model
    DescribesFiles     ``mmlape checkpoint inspect``
    FitsModels         a file's tensors as a model takes them
"""

from mmlape.models.base.describing import DescribesFiles
from mmlape.models.base.fitting import FitsModels


class CheckpointAdapter(DescribesFiles, FitsModels):
    """The files of a backbone: recognised, described, translated, and fitted to a model."""
