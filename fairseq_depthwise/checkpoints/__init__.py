"""Checkpoints: reading, writing, growing, averaging and converting them."""
