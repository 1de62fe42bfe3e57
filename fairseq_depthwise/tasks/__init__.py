"""Tasks of the plugin. Importing them registers them."""

from . import translation_layer_growth  # noqa: F401  # registers
