"""Trained models with linear layers in the place of some of their layers."""
