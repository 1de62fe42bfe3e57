"""A checkpoint is used with a dictionary in another order, or the languages the other way round, without a word.

fairseq compares nothing but the shapes of tensors. Here trainings leave a record of what their checkpoints belong to,
and it is compared where a checkpoint is loaded (:mod:`fairseq_compat.belonging`).
"""

import functools
import os
from collections.abc import Iterator, Sequence
from typing import Any

from fairseq_compat.patching import check_before_training


def adjust(module: Any) -> Iterator[None]:
    yield
    {
        "fairseq.trainer": _record_trainings,
        "fairseq.checkpoint_utils": _compare_data,
        "fairseq_cli.interactive": _compare_text,
    }[module.__name__](module)


def _record_trainings(module: Any) -> None:
    from fairseq_compat import belonging, checkpoints

    trainer = module.Trainer
    state_dict_of, load = trainer.state_dict, trainer.load_checkpoint

    @functools.wraps(load)
    def load_checkpoint(self: Any, filename: str, reset_optimizer: bool = False, *args: Any, **given: Any) -> Any:
        self.belongs_to = belonging.of_training(self.task, self.cfg)
        if self.is_data_parallel_master and os.path.isfile(filename):
            recorded = belonging.recorded_in(checkpoints.load_checkpoint(filename, mapped=True))
            model = belonging.of_model(self.cfg.model)
            belonging.require_same(filename, recorded, model, "this command")
            data = belonging.data_of(self.task)
            if reset_optimizer or self.cfg.checkpoint.reset_dataloader:
                # Another training may begin with the model. A task may have other dictionaries, such as labels.
                found = {
                    name: value
                    for name, value in belonging.of_dictionaries(self.task).items()
                    if _size(value) == _size(recorded.get(name, value))
                }
                belonging.require_same(filename, recorded, found, data)
            else:
                belonging.require_same(filename, recorded, self.belongs_to, data)
                self.belongs_to = {**recorded, **self.belongs_to}
        return load(self, filename, reset_optimizer, *args, **given)

    @functools.wraps(state_dict_of)
    def state_dict(self: Any) -> dict[str, Any]:
        state: dict[str, Any] = state_dict_of(self)
        record = getattr(self, "belongs_to", None) or belonging.of_training(self.task, self.cfg)
        state["extra_state"][belonging.ENTRY] = dict(record)
        return state

    trainer.load_checkpoint, trainer.state_dict = load_checkpoint, state_dict


def _size(dictionary: object) -> str:
    return str(dictionary).partition(" ")[2]


def _compare_data(module: Any) -> None:
    from fairseq_compat import belonging, checkpoints

    read, load = module.load_checkpoint_to_cpu, module.load_model_ensemble_and_task

    @functools.wraps(read)
    def load_checkpoint_to_cpu(path: str, arg_overrides: Any = None, *args: Any, **given: Any) -> Any:
        state = read(path, arg_overrides, *args, **given)
        if arg_overrides:
            recorded = belonging.recorded_in(state)
            belonging.require_same(path, recorded, belonging.of_model(state["cfg"].model), "--model-overrides")
        return state

    @functools.wraps(load)
    def load_model_ensemble_and_task(
        filenames: Sequence[str], arg_overrides: Any = None, task: Any = None, *args: Any, **given: Any
    ) -> Any:
        def compare(task: Any) -> None:
            found, data = belonging.of_task(task), belonging.data_of(task)
            for path in filter(os.path.isfile, filenames):
                recorded = belonging.recorded_in(checkpoints.load_checkpoint(path, mapped=True))
                belonging.require_same(path, recorded, found, data)

        if task is not None:  # before tensors of other sizes are a longer sentence
            compare(task)
        loaded = load(filenames, arg_overrides, task, *args, **given)
        if task is None:
            compare(loaded[2])
        return loaded

    module.load_checkpoint_to_cpu = load_checkpoint_to_cpu
    module.load_model_ensemble_and_task = load_model_ensemble_and_task


def _compare_text(module: Any) -> None:
    from fairseq_compat import belonging, checkpoints

    def check(cfg: Any) -> None:
        settings = belonging.settings_in("tokenizer", cfg), belonging.settings_in("bpe", cfg)
        for path in filter(os.path.isfile, module.utils.split_paths(cfg.common_eval.path or "")):
            recorded = belonging.recorded_in(checkpoints.load_checkpoint(path, mapped=True))
            belonging.require_same(path, recorded, belonging.of_text(*settings), "this command")

    check_before_training(module, check)
