"""Figures of position encodings of live models (LaPE, Figures 1, 3, 4; iRPE, Figure 5; MPVG, Figure 4), and a hook."""
