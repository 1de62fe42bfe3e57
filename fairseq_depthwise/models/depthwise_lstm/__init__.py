"""Layers connected by an LSTM over depth (Xu et al. 2024)."""
