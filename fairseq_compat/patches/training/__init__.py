"""Patches of fairseq: training."""
