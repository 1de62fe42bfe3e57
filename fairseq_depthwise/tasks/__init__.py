"""Tasks of the plugin."""

from fairseq_depthwise.tasks.translation_layer_growth import TranslationLayerGrowthTask
from fairseq_depthwise.tasks.translation_multi_simple_epoch_layer_growth import (
    TranslationMultiSimpleEpochLayerGrowthTask,
)

__all__ = ["TranslationLayerGrowthTask", "TranslationMultiSimpleEpochLayerGrowthTask"]
