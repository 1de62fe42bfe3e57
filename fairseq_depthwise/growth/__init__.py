"""Growing a trained stack of layers: which layer is copied where, when, and what else has to follow."""
