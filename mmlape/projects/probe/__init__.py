"""How much position the features of a ViT hold, by layer."""
