"""A frozen part of a model runs once: its features of K views of each image are stored, and training reads them.

part      what of a model is frozen, asked of the model itself; the stored features in its place
store     files of features, one for each image
hook      fills the store before training, and puts it into the data loaders
"""
