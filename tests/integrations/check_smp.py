"""Run in an environment with segmentation-models-pytorch by `tests/environment/test_integrations.py`.

The contract of an encoder is what that library's own tests ask of each: features by depth, their strides and channels.
"""

import pytest
import segmentation_models_pytorch as smp
import torch
from segmentation_models_pytorch.encoders import get_encoder
from segmentation_models_pytorch.encoders._utils import patch_first_conv

import mmlape
import mmlape.integrations.smp as ours

ADAPTER = dict(conv_inplane=8, deform_num_heads=2)
ARCH = dict(embed_dims=32, num_layers=4, num_heads=2, feedforward_channels=64)
DINO = dict(embed_dim=32, depth=4, num_heads=2)
ENCODERS = {
    'tiny-lape': ('ViTAdapter', dict(ADAPTER, arch=ARCH, img_size=64, pe_joining='lape')),
    'tiny-dpn': ('ViTAdapter', dict(ADAPTER, arch=ARCH, img_size=64, patch_norm='dual', frozen_stages=0)),
    'tiny-dinov3': (
        'TimmViTAdapter',
        dict(ADAPTER, vit=dict(model_name='vit_small_patch16_dinov3', model_args=DINO, frozen=True), mode='read-only'),
    ),
}
for encoder, given in ENCODERS.items():
    ours.register(encoder, *given)
DECODERS = ('FPN', 'UPerNet', 'Segformer', 'Unet')


@pytest.mark.parametrize('name', ENCODERS)
@pytest.mark.parametrize('depth', range(1, 6))
@pytest.mark.parametrize('channels', [1, 3, 4])
def test_contract_of_an_encoder(name, depth, channels):
    encoder = get_encoder(name, in_channels=channels, depth=depth, weights=None).eval()
    images = torch.randn(2, channels, 64, 96)
    with torch.no_grad():
        features = encoder(images)
    assert len(features) == len(encoder.out_channels) == depth + 1
    assert encoder.output_stride == 2**depth
    for level, (feature, count) in enumerate(zip(features, encoder.out_channels)):
        assert feature.shape == (2, count, 64 // 2**level, 96 // 2**level)
    assert torch.equal(features[0], images)
    assert encoder.backbone.in_channels == channels
    frozen = [key for key, value in encoder.named_parameters() if not value.requires_grad]
    other = get_encoder(name, weights=None)  # of 3 channels
    assert frozen == [key for key, value in other.named_parameters() if not value.requires_grad]


def test_weights_of_other_channels_are_the_librarys():
    """Its own function is the oracle for convolutions; a norm of equal channels norms what it would."""
    for channels in (1, 2, 5):
        encoder = get_encoder('tiny-dpn', weights=None)
        torch.nn.init.normal_(encoder.backbone.patch_embed.norm0.weight)
        before = {key: value.clone() for key, value in encoder.state_dict().items()}
        encoder.set_in_channels(channels, pretrained=True)
        changed = {key for key, value in encoder.state_dict().items() if value.shape != before[key].shape}
        convs = {'backbone.patch_embed.proj.weight', 'backbone.spm.stem.0.weight'}
        assert changed == (convs | {f'backbone.patch_embed.norm0.{name}' for name in ('weight', 'bias')})
        for key in convs:
            conv = torch.nn.Conv2d(3, 1, 1)
            conv.weight, conv.out_channels = torch.nn.Parameter(before[key]), len(before[key])
            conv.kernel_size = tuple(before[key].shape[2:])
            patch_first_conv(conv, channels, 3, True)
            torch.testing.assert_close(encoder.state_dict()[key], conv.weight.detach())
        norm, old = encoder.backbone.patch_embed.norm0.weight, before['backbone.patch_embed.norm0.weight']
        expected = old.view(3, -1).mean(0) if channels == 1 else old.view(3, -1)[torch.arange(channels) % 3].flatten()
        torch.testing.assert_close(norm.detach(), expected)
        for key, value in encoder.state_dict().items():
            assert key in changed or torch.equal(value, before[key])


@pytest.mark.parametrize('decoder', DECODERS)
@pytest.mark.parametrize('name', ENCODERS)
def test_train_two_steps_save_and_load(decoder, name, tmp_path):
    torch.manual_seed(1)
    model, other = (getattr(smp, decoder)(name, encoder_weights=None, classes=3) for _ in range(2))
    images, labels = torch.randn(2, 3, 64, 96), torch.randint(3, (2, 64, 96))
    trained = [p for p in model.parameters() if p.requires_grad]
    vit = {key: value.clone() for key, value in model.named_parameters() if not value.requires_grad}
    assert bool(vit) == (name != 'tiny-lape')
    optimizer = torch.optim.AdamW(trained, lr=1e-3)
    for _ in range(2):
        torch.nn.functional.cross_entropy(model.train()(images), labels).backward()
        grads = [p.grad for p in trained]
        assert all(grad is not None for grad in grads)
        optimizer.step()
        optimizer.zero_grad()
    assert all(torch.equal(model.get_parameter(key), value) for key, value in vit.items())
    torch.save(model.state_dict(), tmp_path / 'model.pth')
    other.load_state_dict(torch.load(tmp_path / 'model.pth'))
    with torch.no_grad():
        out = model.eval()(images)
        torch.testing.assert_close(other.eval()(images), out)
    assert out.shape == (2, 3, 64, 96)


def test_maps_are_the_backbones_own():
    encoder = get_encoder('tiny-lape', weights=None).eval()
    images = torch.randn(1, 3, 70, 93)
    torch.testing.assert_close(encoder(images)[2:], list(encoder.backbone(images)))


def test_named_adapters_are_encoders():
    names = mmlape.list_models('*-adapter*')
    assert names and {f'mmlape-{name}' for name in names} <= set(smp.encoders.get_encoder_names())
    model = get_encoder('mmlape-deit-tiny-adapter-lape', weights=None)
    assert model.out_channels == [3, 0, 192, 192, 192, 192]
