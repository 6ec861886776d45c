"""Few-shot accuracy of features, as the papers of ViT and Dual PatchNorm report it."""

REGISTERED = {'FewShotDataset': 'dataset', 'FewShotMetric': 'metric'}
COMMANDS = {'few-shot': "measure few-shot accuracy of a classifier's features, such as 25-shot on ImageNet"}
