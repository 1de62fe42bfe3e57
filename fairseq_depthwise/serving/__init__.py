"""A trained model made ready once, and raw text through it."""
