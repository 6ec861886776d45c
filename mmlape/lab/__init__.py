"""The laboratory: runs of any OpenMMLab config, how they are trained, compared and looked into."""
