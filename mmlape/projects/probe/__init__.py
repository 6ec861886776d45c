"""How much position the features of a ViT hold, by layer."""

COMMANDS = {'probe': 'probe how much position the features of any plain ViT hold, by layer'}
