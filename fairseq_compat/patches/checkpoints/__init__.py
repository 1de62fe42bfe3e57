"""Patches of fairseq: checkpoints."""
