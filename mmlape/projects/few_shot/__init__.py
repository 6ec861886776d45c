"""Few-shot accuracy of features, as the papers of ViT and Dual PatchNorm report it."""
