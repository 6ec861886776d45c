"""CCT-7/3x1 for the hundred classes of CIFAR-100."""

_base_ = 'compact.py'

model = dict(
    data_preprocessor=dict(num_classes=100, mean=[129.3105, 124.1085, 112.404], std=[68.2125, 65.4075, 70.4055]),
    head=dict(num_classes=100),
)
