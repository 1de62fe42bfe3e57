"""Grows the model in a checkpoint: what ``translation_layer_growth`` does at a stage boundary, done to a file.

Training continues from the new checkpoint as if the model had grown during training: with a fresh optimizer and a
restarted learning rate.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import nn

from fairseq_compat import UserError
from fairseq_compat.checkpoints import require_one_value
from fairseq_depthwise.growth.freezing import FREEZES, LastGrowth
from fairseq_depthwise.growth.layer_sources import block_size, layer_sources, require_known
from fairseq_depthwise.growth.parameter_map import drawing_from, map_parameters, zero_new_branches
from fairseq_depthwise.modules.stack import SIDES
from fairseq_depthwise.optim.restarts import add_restart

if TYPE_CHECKING:
    from fairseq_depthwise.checkpoints.checkpoint import Checkpoint

#: Where a checkpoint has the moving average of ``--store-ema``, and its float32 copy.
_AVERAGES = ("ema", "ema_fp32_params")


class GrownCheckpoint(NamedTuple):
    """The deeper checkpoint, the depth of the side before, and the parameters of the model before and after."""

    checkpoint: Checkpoint
    depth_before: int
    parameters_before: int
    parameters: int


def grow_checkpoint(
    checkpoint: Checkpoint,
    layers: int,
    *,
    strategy: str,
    side: str,
    init: str = "copy",
    frozen: str = "none",
    seed: int | None = None,
) -> GrownCheckpoint:
    """Return a checkpoint whose model has ``layers`` layers on one side.

    Args:
        frozen: the ``--growth-freeze`` of the training that continues from it.
        seed: of layers that start anew; None stands for the seed of the training so far.

    Raises:
        UserError: the model cannot be grown that way, an option has an unknown value, or the checkpoint is damaged.
    """
    require_known("side", side, SIDES)
    require_known("frozen", frozen, FREEZES)
    if checkpoint.is_fairseq_transformer:
        raise UserError(
            f"{checkpoint.path} holds fairseq's own transformer, whose class cannot be grown; train sdt_transformer "
            f"from it with --growth-from {checkpoint.path}"
        )
    trained = checkpoint.converted()
    depth = trained.depth(side)
    sources = {side: layer_sources(depth, layers, strategy, block_size(trained.config, side), init)}

    # 1. Two new models with the checkpoint's options: one of its depth, whose values are not used, and a deep one.
    # Models without memory (device "meta") would take longer: for the first of them PyTorch imports 850 modules.
    with drawing_from(0):
        shallow = trained.build_untrained()
    _require_own_parameters(trained, shallow)
    if seed is None:
        # The number of updates is added below, so that growing again draws different values.
        seed = trained.options_of("common").get("seed", 1)
    with drawing_from(seed + trained.updates):
        deep = trained.build_untrained(**{f"{side}_layers": layers})
    parameter_map = map_parameters(deep, trained.parameters, sources, init)
    if init == "zero":
        zero_new_branches(deep, sources)

    # 2. The moving averages grow as the parameters do.
    extra_state = {**(trained.state.get("extra_state") or {}), "grown_from": f"{depth} {side} layers, {strategy}"}
    for average in _AVERAGES:
        if extra_state.get(average):
            require_one_value(shallow, extra_state[average])
            extra_state[average] = parameter_map.apply(extra_state[average])

    # 3. The optimizer's state, which has no place for frozen parameters, neither before nor after.
    last_growth = LastGrowth(parameter_map.new, frozen)
    # The shallow model may itself have grown and have frozen layers.
    LastGrowth.before(trained.state).freeze(shallow)
    last_growth.freeze(deep)
    optimizer_state = _fresh_optimizer(trained.state, _count_trainable(shallow), _count_trainable(deep))

    # 4. The checkpoint, with a restarted learning rate, and the new depth in its options.
    grown = trained.with_entries(
        model=parameter_map.apply(trained.parameters),
        extra_state=extra_state,
        optimizer_history=_restarted_history(trained.state, trained.updates),
        last_optimizer_state=optimizer_state,
        task_state={**(trained.state.get("task_state") or {}), **last_growth.task_state()},
        **_options_with(trained.state, f"{side}_layers", layers),
    )
    return GrownCheckpoint(grown, depth, _count_parameters(shallow), _count_parameters(deep))


def _require_own_parameters(trained: Checkpoint, shallow: nn.Module) -> None:
    """Raise UserError unless a checkpoint has exactly the parameters that its options build, and tied ones are equal.

    Otherwise missing parameters would be initialized as in a new model, and surplus ones left out.
    """
    expected = {name: value.shape for name, value in shallow.state_dict().items()}
    present = {name: value.shape for name, value in trained.parameters.items()}
    if expected != present:
        # The difference has missing parameters, surplus ones and those of another shape; report the first by name.
        name, _ = min(expected.items() ^ present.items())
        raise UserError(f"{trained.path} is damaged: {name} in it is not that of its own options")
    require_one_value(shallow, trained.parameters)


def _options_with(state: dict[str, Any], name: str, value: int) -> dict[str, Any]:
    """Return the entry of ``state`` with the options, after changing an option of the model."""
    # Checkpoints of older fairseq versions have all options in one namespace, "args", instead of "cfg".
    entry = "cfg" if state.get("cfg") else "args"
    options = copy.deepcopy(state[entry])
    model_options = options["model"] if entry == "cfg" else options
    if isinstance(model_options, dict):
        model_options[name] = value
    else:
        setattr(model_options, name, value)
    return {entry: options}


def _restarted_history(state: dict[str, Any], updates: int) -> Any:
    """Return the optimizer's history with a restart of the learning rate now."""
    history = copy.deepcopy(state.get("optimizer_history"))
    if history:
        add_restart(history[-1].get("lr_scheduler_state") or {}, updates)
    return history


def _fresh_optimizer(state: dict[str, Any], before: int, after: int) -> dict[str, Any] | None:
    """Return the state of an optimizer that has taken no step, for ``after`` tensors instead of ``before``.

    With such a state, unlike with none, training continues from the checkpoint's number of updates.
    """
    optimizer = state.get("last_optimizer_state") or {}
    groups = optimizer.get("param_groups") or []
    # fairseq's composite optimizer has several groups; then, as without any state, training builds a new optimizer.
    if len(groups) != 1:
        return None
    count = len(groups[0]["params"])
    is_flat = count < before  # fp16 has all parameters in one vector
    numbers = list(range(count if is_flat else count + after - before))
    # These are the shallow model's weights in float32, for --fp16 and --bf16; fairseq makes new ones of the deep model.
    other_entries = {name: value for name, value in optimizer.items() if name != "master_weights"}
    return {**other_entries, "state": {}, "param_groups": [{**groups[0], "params": numbers}]}


def _count_trainable(model: nn.Module) -> int:
    return sum(parameter.requires_grad for parameter in model.parameters())


def _count_parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())
