"""Scores of translations, their significance, and parameter counts."""
