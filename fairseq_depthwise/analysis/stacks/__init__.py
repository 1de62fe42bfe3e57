"""Analyses of the layers of a stack: similarity and gates."""
