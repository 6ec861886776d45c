"""OpenMMLab's packages as this one needs them: configs below `.mim`, mmcv's ops without a compiler."""
