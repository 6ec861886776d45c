"""DETR (ECCV 2020) with iRPE in its encoder."""
