"""Run in an environment with torchvision alone by `tests/environment/test_integrations.py`."""

import torch
from torchvision.models.detection import MaskRCNN

from mmlape.integrations.torchvision import PyramidFPN

ADAPTER = dict(conv_inplane=8, deform_num_heads=2)
ARCH = dict(embed_dims=32, num_layers=4, num_heads=2, feedforward_channels=64)
OPTIONS = dict(ADAPTER, arch=ARCH, img_size=64, pe_joining='lape')


def detector():
    return MaskRCNN(PyramidFPN('ViTAdapter', OPTIONS, 32), num_classes=3, min_size=64, max_size=96)


def test_train_two_steps_save_and_load(tmp_path):
    torch.manual_seed(1)
    model, other = detector(), detector()
    mask = torch.zeros(1, 70, 93, dtype=torch.uint8)
    mask[:, 5:40, 5:30] = 1
    truth = [dict(boxes=torch.tensor([[5.0, 5, 30, 40]]), labels=torch.tensor([1]), masks=mask)] * 2
    images = [torch.rand(3, 70, 93), torch.rand(3, 71, 55)]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    truth[1] = dict(truth[0], masks=mask[:, :, :55].new_zeros(1, 71, 55))
    for _ in range(2):
        sum(model.train()(images, truth).values()).backward()
        assert all(p.grad is not None for p in model.backbone.parameters())
        optimizer.step()
        optimizer.zero_grad()
    torch.save(model.state_dict(), tmp_path / 'model.pth')
    other.load_state_dict(torch.load(tmp_path / 'model.pth'))
    with torch.no_grad():
        ours, theirs = model.eval()(images), other.eval()(images)
    assert len(ours) == 2 and ours[0]['masks'].shape[2:] == (70, 93)
    torch.testing.assert_close(theirs, ours)


def test_maps():
    fpn = PyramidFPN('ViTAdapter', OPTIONS, 16).eval()
    maps = fpn(torch.randn(1, 3, 70, 93))
    shapes = {name: tuple(value.shape[1:]) for name, value in maps.items()}
    assert shapes == {'0': (16, 18, 24), '1': (16, 9, 12), '2': (16, 5, 6), '3': (16, 3, 3), 'pool': (16, 2, 2)}
