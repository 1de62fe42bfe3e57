"""Patches of fairseq: data."""
