"""ViT-B/32 on a set of VTAB-1k: Caltech101, or another arm of studies/vtab.yml, with its figures; not run by us.

mmlape train configs/vtab/vit-base-p32_1xb512-2500i_vtab.py
"""

_base_ = [
    '../_base_/models/vit_vtab.py',
    '../_base_/datasets/vtab.py',
    '../_base_/schedules/vtab_2500.py',
    '../_base_/default_runtime.py',
]
# MMEngine reads these from the environment; the arms of the study set them
vtab = dict(name='{{$VTAB_SET:caltech101}}', group='{{$VTAB_GROUP:natural}}')
num_classes = int('{{$VTAB_CLASSES:102}}')
data_root = 'data/vtab-1k/{{$VTAB_FOLDER:caltech101}}/'
dataset = dict(data_root=data_root, metainfo=dict(classes=[str(label) for label in range(num_classes)]))
train_dataloader = dict(dataset=dataset)
val_dataloader = dict(dataset=dataset)
test_dataloader = dict(dataset=dataset)
model = dict(data_preprocessor=dict(num_classes=num_classes), head=dict(num_classes=num_classes))
