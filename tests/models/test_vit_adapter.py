"""ViT-Adapter: what golden data of the public code does not show: no injection, two grids, a frozen ViT."""

import pytest
import torch
from model_helpers import adapter

from mmlape.errors import DataError


def test_zero_injectors_leave_the_vit_alone():
    """init_values=0: the ViT inside runs as if there were no pyramid."""
    model = adapter(pe_joining='lape')
    with torch.no_grad():
        for interaction in model.interactions:
            interaction.injector.gamma.zero_()
    image = torch.randn(1, 3, 64, 64)
    x, pe, hw = model.embed(image)
    x, _ = model.run_layers(x, pe, hw, 0, 4)
    seen = {}
    model.interactions[-1].extractor.register_forward_hook(lambda module, args, out: seen.update(tokens=args[2]))
    model(image)
    torch.testing.assert_close(seen['tokens'], x)


@pytest.mark.parametrize('size', [(64, 64), (224, 512), (500, 224)])
def test_two_grids_take_sides_that_both_divide(size):
    model = adapter(patch_size=14)
    with pytest.raises(DataError, match=rf'{size[0]}x{size[1]} pixels: .* multiples of 224; .*crop_size=\(896, 896\)'):
        model(torch.zeros(1, 3, *size))


def test_injectors_are_trained_through_a_frozen_vit():
    model = adapter(patch_size=14, with_cls_token=True, ffn_type='swiglu', frozen_stages=4).train()
    sum(out.square().mean() for out in model(torch.randn(1, 3, 224, 224))).backward()
    trained = {name for name, value in model.named_parameters() if value.requires_grad}
    of_vit = ('patch_embed.', 'blocks.', 'cls_token', 'pos_embed')
    assert not any(name.startswith(of_vit) for name in trained)
    assert all(value.grad.any() for name, value in model.named_parameters() if name.endswith('injector.gamma'))
