"""A base class that makes a task's model deeper while it is trained.

Source: "Shallow-to-Deep Training for Neural Machine Translation", Section 4. ``--growth-stages 6:2,12:2,18:`` trains 6
layers for two epochs, copies layers, trains 12 for two, and so on, all in one command. What is copied where, and when,
is in :mod:`fairseq_depthwise.growth`; this file connects it to fairseq's hooks, for any translation task.
"""

import gc
import itertools
import logging
from dataclasses import dataclass
from typing import Any, Optional

from fairseq import utils
from fairseq.data import FairseqDataset
from fairseq.dataclass import FairseqDataclass
from fairseq.logging import metrics
from fairseq.models import ARCH_CONFIG_REGISTRY, BaseFairseqModel
from fairseq.tasks import FairseqTask
from fairseq.trainer import Trainer
from omegaconf import DictConfig, open_dict

from fairseq_compat import UserError, provenance
from fairseq_compat.patching import replaces
from fairseq_depthwise.checkpoints.checkpoint import Checkpoint
from fairseq_depthwise.growth.freezing import FREEZES, LastGrowth
from fairseq_depthwise.growth.layer_sources import INITS, STRATEGIES, block_size, layer_sources
from fairseq_depthwise.growth.live_growth import grow_trainer, require_growable_trainer
from fairseq_depthwise.growth.parameter_map import require_identity
from fairseq_depthwise.growth.resuming import Restored, depth_to_resume
from fairseq_depthwise.growth.stages import GrowthPlan, Stage, parse_stages
from fairseq_depthwise.growth.warm_start import start_from
from fairseq_depthwise.models.base.config import EncoderDecoderConfig, check_values, option
from fairseq_depthwise.optim.restarting_schedule import RestartingSchedule

logger = logging.getLogger(__name__)


@dataclass
class GrowthConfig(FairseqDataclass):
    """Options of every task that grows its model."""

    growth_stages: str = option(
        "",
        "the model's depth and how long it is trained at it: 6:2,12:2,18: in epochs, 6:5000u in updates, "
        "6:2@4096x2 with the stage's max-tokens and update-freq; the last length may be empty = until training ends",
    )
    growth_side: str = option("encoder", "which stack grows", one_of=("encoder", "decoder", "both"))
    growth_strategy: str = option(
        STRATEGIES[0], "where new layers are inserted and which layers they copy", one_of=STRATEGIES
    )
    growth_init: str = option(
        "copy", "how new layers start: as copies, as copies that pass on what they read, or anew", one_of=INITS
    )
    growth_freeze: str = option(
        "none",
        "what no longer trains once the model has grown: nothing, the layers that were copied (the old layers "
        "of the stack), or all that was trained before",
        one_of=FREEZES,
    )
    growth_from: Optional[str] = option(None, "start from this shallower checkpoint")  # noqa: UP045  # read by fairseq
    growth_optimizer_state: str = option(
        "reset", "the optimizer's state when the model grows", one_of=("reset", "keep")
    )


class GrowingTask(FairseqTask):
    """Grows the model at the boundaries of stages; the first base class of a task, before the one that translates.

    Boundaries between epochs are reached in :meth:`begin_epoch`, those between updates in :meth:`train_step`, at the
    first batch of the update. A checkpoint saved at a boundary has the depth at which it was trained; a run that
    resumes from it then grows it.
    """

    #: The name under which the task is registered.
    name: str

    def __init__(self, *options_and_data: Any) -> None:
        super().__init__(*options_and_data)
        check_values(GrowthConfig, self.growth_options)
        if self.growth_options.growth_from == "":
            raise UserError("--growth-from is empty; give the path of a checkpoint, or leave it out")
        both = self.growth_options.growth_side == "both"
        self.sides: tuple[str, ...] = ("encoder", "decoder") if both else (self.growth_options.growth_side,)
        self.plan: GrowthPlan | None = None
        self._trainer: Trainer | None = None
        self._warm_start_step: int | None = None
        self._last_growth = LastGrowth()
        self._max_tokens_of_batches: int | None = None

    @property
    def growth_options(self) -> Any:
        """The options of :class:`GrowthConfig`, and fairseq's ``train_subset``, ``save_dir`` and so on."""
        return provenance.options_of(self)

    def build_model(self, cfg: DictConfig, from_checkpoint: bool = False) -> BaseFairseqModel:
        """Build the model at the depth at which training starts or resumes, or ``from_checkpoint`` at its own depth."""
        # fairseq loads a checkpoint for generation: nothing grows.
        if from_checkpoint:
            return super().build_model(cfg, from_checkpoint)
        dataclass_of_model = provenance.options_class(cfg._name)
        if not (isinstance(dataclass_of_model, type) and issubclass(dataclass_of_model, EncoderDecoderConfig)):
            raise UserError(
                f"--arch {cfg._name} cannot be grown; the models of this plugin can, and a trained transformer can be "
                "given with --growth-from to --arch sdt_transformer"
            )
        # 1. The plan.
        options = self.growth_options
        if not options.growth_stages:
            raise UserError(f"--task {self.name} needs --growth-stages, such as 6:2,12:2,18:")
        # Both sides have the same depths, which must be multiples of the block size; decoders have no blocks (0).
        blocks = {side: block_size(cfg, side) for side in self.sides}
        self.plan = parse_stages(
            options.growth_stages, strategy=options.growth_strategy, block_size=max(blocks.values())
        )
        for side in self.sides:
            _require_no_other_depth(cfg, side, self.plan)

        # 2. The model, at the depth of the first stage or of the checkpoint that fairseq is about to restore.
        restored = Restored.by(options)
        depth = self.plan.depths[0]
        if restored.path is not None:
            depth = self._resume(Checkpoint.open(restored.path), self.plan, counts_anew=restored.counts_anew)
        with open_dict(cfg):
            for side in self.sides:
                cfg[f"{side}_layers"] = depth
        model = super().build_model(cfg, from_checkpoint)

        # 3. Fail now if a later boundary would fail.
        if options.growth_init == "zero":
            depths_to_come = [planned for planned in self.plan.depths if planned >= depth]
            # The next growth may be hours away.
            for before, after in itertools.pairwise(depths_to_come):
                for side, in_block in blocks.items():
                    require_identity(getattr(model, side), self._layer_sources(before, after, in_block))
        # 4. A run that is not resumed may start from a trained model.
        if restored.path is None and options.growth_from:
            checkpoint = Checkpoint.open(options.growth_from, "--growth-from")
            self._start_from(checkpoint, model, dataclass_of_model.complete(cfg))
        frozen_count = self._last_growth.freeze(model)
        if frozen_count:
            logger.info("--growth-freeze %s: %s parameters do not train", options.growth_freeze, f"{frozen_count:,}")
        return model

    def _resume(self, checkpoint: Checkpoint, plan: GrowthPlan, *, counts_anew: bool) -> int:
        """Return the depth of the checkpoint that fairseq is about to restore, and remember its last growth."""
        options = self.growth_options
        if not counts_anew:
            self._last_growth = LastGrowth.before(checkpoint.state)._replace(frozen=options.growth_freeze)
        return depth_to_resume(checkpoint, self.sides[0], plan, options, counts_anew=counts_anew)

    def _start_from(self, checkpoint: Checkpoint, model: Any, config: EncoderDecoderConfig) -> None:
        """Give a new model the parameters of a trained one with the same dictionaries."""
        options = self.growth_options
        new = start_from(
            checkpoint,
            model,
            config,
            sides=self.sides,
            strategy=options.growth_strategy,
            init=options.growth_init,
        )
        self._warm_start_step = checkpoint.updates
        self._last_growth = LastGrowth(new, options.growth_freeze)
        # Embeddings are looked up by number: with another dictionary, a word would get another word's embedding.
        dictionaries = provenance.of_dictionaries(self)
        provenance.require_same(checkpoint.name, checkpoint.provenance, dictionaries, provenance.data_of(self))

    def state_dict(self) -> dict[str, Any]:
        """Return the task's entries in a checkpoint, with the last growth, which decides what is frozen."""
        return {**super().state_dict(), **self._last_growth.task_state()}

    def set_trainer(self, trainer: Trainer) -> None:
        """Give fairseq the lengths and batch sizes of the stages; called once, by a new trainer."""
        plan = self.plan
        # Without a plan the model was not built for training, and does not grow.
        if plan is None:
            return
        require_growable_trainer(trainer, self.growth_options.growth_optimizer_state == "keep")
        self._trainer = trainer
        self._limit_training(trainer, plan)
        self._set_update_frequencies(trainer, plan)
        present = plan.stage_with(self._depth(trainer))
        if present is not None:
            logger.info(plan.describe(present))

    def _limit_training(self, trainer: Trainer, plan: GrowthPlan) -> None:
        """End training after the last stage; raise UserError if nothing would end it."""
        optimization = trainer.cfg.optimization
        limit = "max_update" if plan.in_updates else "max_epoch"
        if plan.length is not None:
            # In fairseq 0 means no limit.
            optimization[limit] = min(optimization[limit] or plan.length, plan.length)
        else:
            ends = [optimization[name] for name in ("max_update", "max_epoch", "stop_time_hours", "stop_min_lr")]
            ends.append(trainer.cfg.checkpoint.patience)
            if not any(number and number > 0 for number in ends):
                raise UserError(
                    f"--growth-stages {plan.text}: the last stage has no end; give it a length, or --max-epoch, "
                    "--max-update, --stop-time-hours, --stop-min-lr or --patience"
                )
        last_stage = len(plan.stages) - 1
        # The user's own limit may end training before the last stage.
        last_reached = plan.stage_of(optimization[limit]) if optimization[limit] else last_stage
        if last_reached < last_stage:
            logger.warning(
                "training ends with %d layers: --%s %d is over before the later stages of --growth-stages %s",
                plan.depths[last_reached],
                limit.replace("_", "-"),
                optimization[limit],
                plan.text,
            )

    def _set_update_frequencies(self, trainer: Trainer, plan: GrowthPlan) -> None:
        """Give fairseq the ``--update-freq`` of each epoch if stages set it."""
        optimization, common = trainer.cfg.optimization, trainer.cfg.common
        frequencies = plan.update_freqs(optimization.update_freq)
        if frequencies is None:
            return
        if common.fp16_scale_window is None:
            # fairseq's default for one frequency; for several it asks for a window.
            world_size = trainer.cfg.distributed_training.distributed_world_size
            common.fp16_scale_window = int(2**14 / world_size / frequencies[0])
        optimization.update_freq = frequencies

    def begin_epoch(self, epoch: int, model: BaseFairseqModel) -> None:
        """Grow if a stage begins with this epoch."""
        super().begin_epoch(epoch, model)
        trainer, plan = self._trainer, self.plan
        if trainer is None or plan is None:
            return
        # fairseq calls this on resuming, too, but a warm start sets the rate only before the first update.
        updates, schedule = trainer.get_num_updates(), trainer.lr_scheduler
        if self._warm_start_step is not None and updates == 0 and isinstance(schedule, RestartingSchedule):
            schedule.start_at(self._warm_start_step)
            trainer.lr_step_update()
        self._enter(trainer, plan, plan.stage_of(updates + 1 if plan.in_updates else epoch))

    def train_step(
        self,
        sample: Any,
        model: Any,
        criterion: Any,
        optimizer: Any,
        update_num: int,
        ignore_grad: bool = False,
        **options: Any,
    ) -> Any:
        """Run forward and backward, after growing if a stage begins with this update."""
        trainer, plan = self._trainer, self.plan
        if trainer is not None and plan is not None:
            if plan.in_updates and self._enter(trainer, plan, plan.stage_of(update_num + 1)):
                # The trainer passed the model, criterion and optimizer that it had before growth.
                model, criterion, optimizer = trainer.model, trainer.criterion, trainer.optimizer
                # fairseq did both before this call, but to the old optimizer and criterion.
                optimizer.zero_grad()
                criterion.train()
            self._log_stage(trainer, plan)
        return super().train_step(sample, model, criterion, optimizer, update_num, ignore_grad, **options)

    def _enter(self, trainer: Trainer, plan: GrowthPlan, stage: int) -> bool:
        """Grow to the depth of a stage unless the model has it; return whether it grew."""
        present, depth = self._depth(trainer), plan.depths[stage]
        if present >= depth:
            return False
        options = self.growth_options
        self._last_growth = grow_trainer(
            trainer,
            # Not self.build_model, which would make another generator for --eval-bleu; that one keeps its model.
            lambda: FairseqTask.build_model(self, trainer.cfg.model),
            {side: self._layer_sources(present, depth, block_size(trainer.cfg.model, side)) for side in self.sides},
            init=options.growth_init,
            frozen=options.growth_freeze,
            keep_moments=options.growth_optimizer_state == "keep",
        )
        logger.info(plan.describe(stage))
        return True

    def _layer_sources(self, depth: int, layers: int, in_block: int) -> list[int | None]:
        options = self.growth_options
        return layer_sources(depth, layers, options.growth_strategy, in_block, options.growth_init)

    def _depth(self, trainer: Trainer) -> int:
        return len(getattr(trainer.get_model(), self.sides[0]).layers)

    def _log_stage(self, trainer: Trainer, plan: GrowthPlan) -> None:
        depth = self._depth(trainer)
        stage = plan.stage_with(depth)
        metrics.log_scalar("stage", 0 if stage is None else stage + 1, weight=0, priority=310, round=0)
        metrics.log_scalar("depth", depth, weight=0, priority=311, round=0)
        if isinstance(trainer.lr_scheduler, RestartingSchedule):
            metrics.log_scalar("peak_lr", trainer.lr_scheduler.peak, weight=0, priority=312)

    def get_batch_iterator(
        self, dataset: FairseqDataset, *, max_tokens: int | None = None, max_positions: Any = None, **options: Any
    ) -> Any:
        """Return batches of the size that the epoch's stage sets."""
        if self.plan is not None and dataset is self.datasets.get(self.growth_options.train_subset):
            # Stages in updates do not set batches, so any of them will do.
            index = 0 if self.plan.in_updates else self.plan.stage_of(options.get("epoch", 1))
            stage: Stage = self.plan.stages[index]
            if stage.max_tokens is not None:
                max_tokens = stage.max_tokens
                # A longer sentence would not fit into a batch.
                max_positions = utils.resolve_max_positions(max_positions, max_tokens)
            if max_tokens != self._max_tokens_of_batches and dataset in self.dataset_to_epoch_iter:
                # Otherwise fairseq would reuse the batches of the previous stage.
                before = self.dataset_to_epoch_iter.pop(dataset)
                before._cur_epoch_itr = before._next_epoch_itr = before.dataloader = None
                # Its worker ends at once now; beside the next iterator's worker it would take five seconds.
                gc.collect()
            self._max_tokens_of_batches = max_tokens
        return super().get_batch_iterator(dataset, max_tokens=max_tokens, max_positions=max_positions, **options)


def _require_no_other_depth(cfg: DictConfig, side: str, plan: GrowthPlan) -> None:
    """Refuse a depth that is neither the architecture's default nor that of the first or last stage."""
    # The architecture's function sets its defaults; for what it does not set, the dataclass's default holds.
    defaults = DictConfig({})
    ARCH_CONFIG_REGISTRY.get(cfg._name, lambda args: None)(defaults)
    name = f"{side}_layers"
    depth = cfg[name]
    default = defaults.get(name, getattr(provenance.options_class(cfg._name), name))
    if depth not in (default, plan.depths[0], plan.depths[-1]):
        raise UserError(
            f"--{side}-layers {depth} contradicts --growth-stages {plan.text}, which decides the depth; leave "
            f"--{side}-layers out"
        )


@replaces(Trainer, "__init__")
def _initialize(original: Any, trainer: Trainer, *args: Any, **kwargs: Any) -> None:
    """Give a growing task its trainer; fairseq passes it to no task."""
    original(trainer, *args, **kwargs)
    if isinstance(trainer.task, GrowingTask):
        trainer.task.set_trainer(trainer)
