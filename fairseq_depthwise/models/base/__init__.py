"""Encoder, decoder and model that all families share."""
