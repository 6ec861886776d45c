"""Golden data of Swin: microsoft/Swin-Transformer's (at f82860b), as it is and with LaPE by hooks.

LaPE has no public code for Swin. Its arms are the public model with its own table at zero: a hook adds w_l to the
output of each ``norm1``, w_l = LN_l(w_{l-1}), computed here. From stage to stage w is merged: the cells of the public
merging, a norm of its own, the shared reduction; or a table of the stage starts a new chain. Attention without a
relative position bias is the public one with its tables at zero.

The public code takes images of one size; each size has a model of its own. The small one has maps of 4 x 8 and 2 x 4
tokens for windows of 4: the public code shrinks them to 2 in the second stage, and shifts none.
"""

import sys
import types
import warnings
from pathlib import Path

import torch
import torch.nn.functional as F
from recording import Case, Weights, call, checkout, fill, image, write
from torch import Tensor, nn

folder = checkout()
package = types.ModuleType('swin')
package.__path__ = [str(Path(folder) / 'models')]
sys.modules['swin'] = package
warnings.simplefilter('ignore')
from swin.swin_transformer import SwinTransformer  # noqa: E402

DIMS, DEPTHS, HEADS, WINDOW, PATCH = 12, (2, 2), (2, 4), 4, 4
ARCH = dict(embed_dims=DIMS, depths=DEPTHS, num_heads=HEADS)
DROPS = dict(drop_rate=0.1, attn_drop_rate=0.2, drop_path_rate=0.3)  # of no effect in evaluation mode
INPUTS = dict(square=image(0, 2, 3, 32, 32), wide=image(1, 1, 3, 32, 64), small=image(2, 2, 3, 16, 32))
TABLE, INDEX, APE = 'relative_position_bias_table', 'relative_position_index', 'absolute_pos_embed'


def build(size: tuple[int, int], ape: bool) -> nn.Module:
    """Build the public model."""
    return SwinTransformer(
        img_size=size,
        patch_size=PATCH,
        embed_dim=DIMS,
        depths=list(DEPTHS),
        num_heads=list(HEADS),
        window_size=WINDOW,
        ape=ape,
        num_classes=0,
    )


def our_name(name: str) -> str:
    """Return the name that a public parameter has here."""
    return name.replace('norm.', f'norm{len(DEPTHS) - 1}.', 1) if name.startswith('norm.') else name


def public_state(model: nn.Module) -> Weights:
    """Return the public parameters and indices under our names; masks are no weights."""
    return {our_name(name): value for name, value in model.state_dict().items() if not name.endswith('attn_mask')}


def layer_norm(x: Tensor, weights: Weights, name: str) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], weights[f'{name}.weight'], weights[f'{name}.bias'], 1e-5)


def merge(w: Tensor, grid: tuple[int, int], weights: Weights, stage: int) -> Tensor:
    """Merge a PE: the public order of cells, its own norm, the tokens' reduction."""
    w = w.view(1, *grid, -1)
    cells = torch.cat([w[:, row::2, column::2] for row, column in ((0, 0), (1, 0), (0, 1), (1, 1))], dim=-1)
    name = f'layers.{stage}.downsample'
    return layer_norm(cells.flatten(1, 2), weights, f'{name}.pe_norm') @ weights[f'{name}.reduction.weight'].T


def chain(weights: Weights, grid: tuple[int, int], joining: str, hierarchy: str) -> list[Tensor]:
    """Compute what each layer's attention gets of the PE."""
    seen, w = [], weights[APE]
    for stage, depth in enumerate(DEPTHS):
        if stage:
            w = merge(w, grid, weights, stage - 1) if hierarchy == 'merge' else weights[f'{APE}{stage}']
            grid = (grid[0] // 2, grid[1] // 2)
        for block in range(depth):
            normed = layer_norm(w, weights, f'layers.{stage}.blocks.{block}.pe_norm')
            seen.append(normed)
            w = normed if joining == 'lape' else w
    return seen


def swin_case(key: str, absolute: bool, rpe: bool, joining: str = 'default', hierarchy: str = 'merge') -> Case:
    """Return one arm at the size of one input."""
    size = tuple(INPUTS[key].shape[2:])
    normed = 'lape' in joining
    model = build(size, absolute and not normed)
    names = {our_name(name): name for name in model.state_dict()}
    state = public_state(model)
    grid = (size[0] // PATCH, size[1] // PATCH)
    if not rpe:
        state = {name: value for name, value in state.items() if not name.endswith((TABLE, INDEX))}
    if normed:
        state[APE] = torch.zeros(1, grid[0] * grid[1], DIMS)
        for stage, depth in enumerate(DEPTHS):
            if stage and hierarchy == 'stage':
                state[f'{APE}{stage}'] = torch.zeros(1, grid[0] * grid[1] // 4**stage, DIMS * 2**stage)
            elif stage:
                state.update(vectors(f'layers.{stage - 1}.downsample.pe_norm', 4 * DIMS * 2 ** (stage - 1)))
            for block in range(depth):
                state.update(vectors(f'layers.{stage}.blocks.{block}.pe_norm', DIMS * 2**stage))
    fixed = [name for name in state if name.endswith(INDEX)]
    base = model.state_dict()

    def run(weights: Weights, x: Tensor) -> list[Tensor]:
        own = {name: weights.get(ours, torch.zeros_like(base[name], dtype=x.dtype)) for ours, name in names.items()}
        own.update({name: value.to(x.dtype) for name, value in base.items() if name.endswith('attn_mask')})
        own.update({name: value for name, value in base.items() if name.endswith(INDEX)})
        hooks = []
        if normed:
            blocks = [block for stage in model.layers for block in stage.blocks]
            for block, w in zip(blocks, chain(weights, grid, joining, hierarchy), strict=True):
                hooks.append(block.norm1.register_forward_hook(lambda module, args, out, w=w: out + w))
        outputs = [call(model, own, x)]
        for hook in hooks:
            hook.remove()
        return outputs

    pe_type = (['learnable', 'rpe'] if rpe else 'learnable') if absolute else 'rpe'
    kwargs = dict(arch=ARCH, img_size=size, window_size=WINDOW, pe_type=pe_type, pe_joining=joining, **DROPS)
    kwargs |= {} if hierarchy == 'merge' else dict(pe_hierarchy=hierarchy)
    name = '-'.join([*(['ape'] if absolute else []), *(['rpe'] if rpe else []), joining, hierarchy, key])
    return Case(name, 'SwinTransformer', kwargs, fill(state, fixed), run, fixed=fixed, inputs=[key])


def vectors(name: str, dims: int) -> Weights:
    """Return the parameters of a norm, to be filled."""
    return {f'{name}.weight': torch.ones(dims), f'{name}.bias': torch.zeros(dims)}


if __name__ == '__main__':
    cases = [swin_case(key, False, True) for key in INPUTS]
    cases += [swin_case(key, True, False, 'lape') for key in ('square', 'wide')]
    cases += [swin_case('square', True, False), swin_case('wide', True, True)]
    cases += [swin_case('wide', True, True, 'lape'), swin_case('square', True, False, 'lape', 'stage')]
    cases += [swin_case('square', True, False, 'lape-shared'), swin_case('small', True, True, 'lape')]
    write('swin', INPUTS, cases)
