"""Shallow-to-deep training: blocks of layers with sparse connections (Li et al. 2020)."""
