"""The table of an absolute position embedding in a checkpoint of any known layout, resized to another grid."""

from collections import OrderedDict
from collections.abc import Mapping

from torch import Tensor

from mmlape.checkpoint.exact_loading import require_grid
from mmlape.checkpoint.key_maps import recognise_backbone, with_batch_axis
from mmlape.checkpoint.opening import OpenedFile, state_dict_of, weights_in
from mmlape.errors import CheckpointError, require_choice
from mmlape.models.base.fitting import read_rows
from mmlape.models.grid import RESIZE_MODES, Grid
from mmlape.models.position import AttentionPosition, kinds
from mmlape.models.position.base import resize_absolute

NAME = 'the state dict'


def resize_pos_embed(
    state_dict: Mapping, grid: int | Grid, source: Grid | None = None, mode: str = 'bicubic'
) -> dict[str, Tensor]:
    """Return the weights of a ViT with its tables of the position embedding resized to another grid.

    Names and all other tensors stay as they are, and the dict notes the new grid, as ``state_dict()`` does. The file
    may be of timm, DeiT, DINOv2, MAE, CLIP, big_vision, OpenMMLab or this package: its layout is recognised as
    ``load_weights`` does it. Rows of the class token and of registers are kept.

    Args:
        state_dict: Weights by name, or a file's content with them under 'model', 'state_dict' and
            the like.
        grid: (rows, columns) of patches; an int for a square. It is the image's (height, width)
            over the patch size.
        source: The grid that the table has; by default the one that the file records, else a square beside the rows
            of the file's tokens.
        mode: As ``interpolate_mode`` of ``VisionTransformer``. 'bicubic-antialias' is what timm
            does, 'bicubic-offset' what DINOv2 without registers does, 'bilinear-corners' what
            big_vision does.

    Raises:
        ConfigError: For a grid that is none, and for an unknown mode.
        CheckpointError: If no layout fits, if there is no table, or if its rows are not those of
            ``source``.
    """
    require_choice('mode', mode, RESIZE_MODES)
    target = require_grid(grid, 'resize_pos_embed: grid')
    known = None if source is None else require_grid(source, 'resize_pos_embed: source')
    state_dict_of(state_dict, NAME)  # checks it
    stored = {name: value for name, value in weights_in(state_dict, NAME).items() if isinstance(value, Tensor)}
    model_class, weights = recognise_backbone(OpenedFile(state_dict, NAME))
    known = known or weights.grid
    adapter = model_class.checkpoint_adapter
    tables, tokens = adapter.tables(weights), adapter.table_tokens(model_class, weights)
    attn = adapter.names.attention(weights)
    inside = [encoding.name for encoding in kinds(AttentionPosition) if encoding.has_grid and encoding.found_in(attn)]
    if inside:
        raise CheckpointError(
            f'{NAME} has a position encoding inside attention ({inside[0]}), which depends on the '
            f'model: build {model_class.__name__} for the other image size, and mmlape.load_weights '
            'resizes all of the file'
        )
    if not tables:
        raise CheckpointError(f'{NAME} ({weights.layout} layout) has no table of an absolute PE to resize')
    out = OrderedDict(stored)
    noted = dict(getattr(weights_in(state_dict, NAME), '_metadata', {}))
    for name in tables:
        table = with_batch_axis(weights.tensors[name])
        stored_name = _named(stored, table, name)
        recorded, remedy = [known] if known else [], 'source=(rows, columns)'
        reading = read_rows(table.shape[1], tokens, recorded, [], f'{NAME}: {stored_name}', remedy)
        prefix = sum(reading.tokens.values())
        resized = resize_absolute(table, reading.grid, target, prefix, mode)
        out[stored_name] = resized.reshape(*stored[stored_name].shape[:-2], *resized.shape[1:])
        path = stored_name.rpartition('.')[0]
        noted[path] = {**noted.get(path, {}), 'grid': target}
    out._metadata = noted  # where torch looks for what a state dict says of itself
    return out


def _named(stored: Mapping[str, Tensor], table: Tensor, name: str) -> str:
    """Return the file's own name of a table.

    Translations of layouts keep the memory of a table as it is.

    Raises:
        CheckpointError: If the table is computed of several tensors.
    """
    for stored_name, value in stored.items():
        if value.data_ptr() == table.data_ptr() and value.numel() == table.numel():
            return stored_name
    raise CheckpointError(
        f'{NAME}: {name} is computed of several of its tensors; build the model for the other '
        'image size, and mmlape.load_weights resizes it'
    )
