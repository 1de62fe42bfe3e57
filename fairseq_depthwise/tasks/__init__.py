"""Tasks of the plugin."""

from fairseq_depthwise.tasks.translation_layer_growth import TranslationLayerGrowthTask

__all__ = ["TranslationLayerGrowthTask"]
