"""Patches of fairseq: options."""
