"""ImageNet-1K as big_vision has it: 99 % of the training images, the validation images for the score.

The last percent is where the Dual PatchNorm paper chose its recipe; 93,000 steps of 4096 are 300 epochs of the others.
`data_root` is the only path; it holds `train` and `val`.
"""

_base_ = './big_vision.py'

data_root = 'data/imagenet/'
data_fraction = 0.99
train_dataloader = dict(dataset=dict(type='ImageNet', data_root=data_root, split='train'))
val_dataloader = dict(dataset=dict(type='ImageNet', data_root=data_root, split='val'))
test_dataloader = val_dataloader
