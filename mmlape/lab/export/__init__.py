"""ONNX graphs of complete models and of backbones: written, held to PyTorch's numbers, and run."""
