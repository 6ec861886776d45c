"""What all backbones have in common."""
