"""Translation between many languages with a model that becomes deeper while it is trained."""

from argparse import ArgumentParser, Namespace

from fairseq.dataclass.utils import gen_parser_from_dataclass
from fairseq.tasks import register_task
from fairseq.tasks.translation_multi_simple_epoch import TranslationMultiSimpleEpochTask

from fairseq_depthwise.tasks.growing_task import GrowingTask, GrowthConfig


@register_task("translation_multi_simple_epoch_layer_growth")
class TranslationMultiSimpleEpochLayerGrowthTask(GrowingTask, TranslationMultiSimpleEpochTask):
    """fairseq's ``translation_multi_simple_epoch`` whose model grows.

    The task is of fairseq's older kind: its options are a namespace that has all options of the command line.
    """

    name = "translation_multi_simple_epoch_layer_growth"
    args: Namespace

    @staticmethod
    def add_args(parser: ArgumentParser) -> None:
        TranslationMultiSimpleEpochTask.add_args(parser)
        gen_parser_from_dataclass(parser, GrowthConfig())

    @property
    def growth_options(self) -> Namespace:
        return self.args
