"""Fashion-MNIST from its files as they are published."""

REGISTERED = {'GzippedFashionMNIST': 'dataset'}
