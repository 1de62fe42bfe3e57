"""Translation from one language to another with a model that becomes deeper while it is trained."""

from dataclasses import dataclass
from typing import Optional

from fairseq.tasks import register_task
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from omegaconf import II

from fairseq_depthwise.tasks.growing_task import GrowingTask, GrowthConfig


@dataclass
class TranslationLayerGrowthConfig(GrowthConfig, TranslationConfig):
    """Options of ``translation_layer_growth``; the interpolated ones are fairseq's own, which say what is restored."""

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
    cfg: TranslationLayerGrowthConfig

    @property
    def growth_options(self) -> TranslationLayerGrowthConfig:
        return self.cfg
