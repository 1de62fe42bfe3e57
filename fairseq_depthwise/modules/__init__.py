"""Building blocks: tensors in, tensors out. They know nothing of fairseq's registries or command line."""
