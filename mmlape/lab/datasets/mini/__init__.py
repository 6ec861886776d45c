"""The mini data: handwritten digits on photographs in the formats of COCO, ADE20K and ImageNet."""
