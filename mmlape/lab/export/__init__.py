"""Export to ONNX, held to PyTorch's numbers: complete models, and backbones."""
