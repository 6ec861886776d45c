"""Plain-DETR (ICCV 2023): a detector on one map of a ViT, frozen or not, as DINOv3 has it too."""
