"""Mask2Former (CVPR 2022): mmdetection's and mmsegmentation's parts on our deformable attention."""
