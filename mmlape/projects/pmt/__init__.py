"""PMT (2603.25398): a plain mask decoder over a frozen ViT, without deformable attention."""
