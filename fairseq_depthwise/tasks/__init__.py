"""Tasks of the plugin."""

from fairseq_depthwise.tasks import translation_layer_growth

__all__ = ["translation_layer_growth"]
