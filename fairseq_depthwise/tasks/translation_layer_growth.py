"""Translation, from one language to another or between many, with a model that becomes deeper during training."""

from argparse import ArgumentParser
from dataclasses import dataclass
from typing import Optional

from fairseq.dataclass.utils import gen_parser_from_dataclass
from fairseq.tasks import register_task
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from fairseq.tasks.translation_multi_simple_epoch import TranslationMultiSimpleEpochTask
from omegaconf import II

from fairseq_depthwise.tasks.growing_task import GrowingTask, GrowthConfig


@dataclass
class TranslationLayerGrowthConfig(GrowthConfig, TranslationConfig):
    """Options of ``translation_layer_growth``; the interpolated ones are fairseq's, and say what is restored."""

    save_dir: str = II("checkpoint.save_dir")
    restore_file: str = II("checkpoint.restore_file")
    continue_once: Optional[str] = II("checkpoint.continue_once")  # noqa: UP045  # read by fairseq
    finetune_from_model: Optional[str] = II("checkpoint.finetune_from_model")  # noqa: UP045  # read by fairseq
    reset_dataloader: bool = II("checkpoint.reset_dataloader")
    reset_optimizer: bool = II("checkpoint.reset_optimizer")


@register_task("translation_layer_growth", dataclass=TranslationLayerGrowthConfig)
class TranslationLayerGrowthTask(GrowingTask, TranslationTask):
    """fairseq's ``translation`` whose model grows."""

    name = "translation_layer_growth"


@register_task("translation_multi_simple_epoch_layer_growth")
class TranslationMultiSimpleEpochLayerGrowthTask(GrowingTask, TranslationMultiSimpleEpochTask):
    """fairseq's ``translation_multi_simple_epoch`` whose model grows.

    This is a task of fairseq's older kind: its options are a namespace with all options of the command line.
    """

    name = "translation_multi_simple_epoch_layer_growth"

    @staticmethod
    def add_args(parser: ArgumentParser) -> None:
        TranslationMultiSimpleEpochTask.add_args(parser)
        gen_parser_from_dataclass(parser, GrowthConfig())
