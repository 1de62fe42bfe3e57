"""Growing inside a running fairseq trainer: what the next updates compute, the rate, the average, what is saved."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fairseq.logging import metrics
from fairseq.trainer import Trainer
from growing_trainer import BATCHES, PEAK, WARMUP, configured, save, train, trainer_of
from tiny_models import PAD
from torch import Tensor, nn

from fairseq_compat import UserError
from fairseq_depthwise.growth.live_growth import require_growable_trainer, require_same_on_all_processes

pytestmark = pytest.mark.filterwarnings("ignore:.torch.cuda.amp.autocast:FutureWarning")  # fairseq's call


def values_of(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def assert_equal(found: dict[str, Tensor], expected: dict[str, Tensor], **tolerance: float) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, **(tolerance or {"rtol": 0, "atol": 0}), msg=name)


# --- training by hand ------------------------------------------------------------------------------------------------


def hand_source(name: str, copied: int, layer: int) -> str:
    """Layer and block norm ``layer`` are copies of ``copied``; everything else stays."""
    return re.sub(rf"(encoder\.layers|encoder\.connection\.norms)\.{layer}\.", rf"\1.{copied}.", name)


def grown_by_hand(model: nn.Module, copied: int) -> nn.Module:
    """One more layer, a copy of layer ``copied``."""
    deep = copy.deepcopy(model)
    deep.encoder.layers.append(copy.deepcopy(model.encoder.layers[copied]))
    deep.encoder.connection.norms.append(copy.deepcopy(model.encoder.connection.norms[copied]))
    row = len(model.encoder.connection.rows) + 1
    deep.encoder.connection.rows.append(nn.Parameter(torch.full((row,), 1 / row)))
    return deep


#: Of Adam; so large that gradients which are zero but for rounding do not move anything.
EPSILON, BETAS = 1e-2, (0.9, 0.999)

#: Name -> first and second moment, and the number of steps.
Moments = dict[str, tuple[Tensor, Tensor, int]]


def update_by_hand(model: nn.Module, moments: Moments, rate: float) -> None:
    """Adam on the mean of the negative log likelihood over the tokens of both batches."""
    model.zero_grad()
    loss = torch.zeros(())
    for one in BATCHES:
        scores, _ = model(**one["net_input"])
        loss = loss + nn.functional.cross_entropy(
            scores.flatten(0, 1), one["target"].flatten(), ignore_index=PAD, reduction="sum"
        )
    (loss / sum(one["ntokens"] for one in BATCHES)).backward()
    for name, parameter in model.named_parameters():
        first, second, steps = moments.get(name, (torch.zeros_like(parameter), torch.zeros_like(parameter), 0))
        first = BETAS[0] * first + (1 - BETAS[0]) * parameter.grad
        second = BETAS[1] * second + (1 - BETAS[1]) * parameter.grad**2
        moments[name] = first, second, steps + 1
        size = rate * (1 - BETAS[1] ** (steps + 1)) ** 0.5 / (1 - BETAS[0] ** (steps + 1))
        parameter.data = parameter.data - size * first / (second.sqrt() + EPSILON)


@pytest.mark.parametrize("state", ["reset", "keep"])
def test_the_updates_before_and_after_a_border(state: str) -> None:
    trainer = trainer_of(task__growth_optimizer_state=state, optimizer__adam_eps=EPSILON)
    by_hand = copy.deepcopy(trainer.get_model())
    moments: Moments = {}
    for rate in (0.0, PEAK / 2):  # steps 0 and 1 of a warm-up of 2
        update_by_hand(by_hand, moments, rate)
    assert [depth for depth, _ in train(trainer, 2)] == [1, 1]
    assert_equal(values_of(trainer.get_model()), values_of(by_hand), rtol=1e-5, atol=1e-6)

    by_hand = grown_by_hand(by_hand, copied=0)
    moments_of_deep: Moments = {}
    if state == "keep":
        for name, _ in by_hand.named_parameters():
            if (source := hand_source(name, copied=0, layer=1)) in moments:
                moments_of_deep[name] = moments[source]
    for rate in (PEAK, PEAK * (WARMUP / (WARMUP + 1)) ** 0.5):
        update_by_hand(by_hand, moments_of_deep, rate)
    assert [depth for depth, _ in train(trainer, 2)] == [2, 2]
    assert_equal(values_of(trainer.get_model()), values_of(by_hand), rtol=1e-5, atol=1e-6)


def test_depth_and_rate_of_every_update() -> None:
    trainer = trainer_of()
    root = (WARMUP / (WARMUP + 1)) ** 0.5
    # The rate that fairseq has after an update is that of the next one, before a border's restart.
    expected = [(1, 1 / 2), (1, 1.0), (2, root), (2, (WARMUP / (WARMUP + 2)) ** 0.5), (3, root), (3, 2**-0.5)]
    found = train(trainer, 6)
    assert [depth for depth, _ in found] == [depth for depth, _ in expected]
    assert [rate for _, rate in found] == pytest.approx([PEAK * rate for _, rate in expected])
    assert trainer.cfg.model.encoder_layers == 3
    assert trainer.get_num_updates() == 6
    assert trainer.lr_scheduler.state_dict()["restarts"] == [2, 4]


def test_a_rate_by_epochs_goes_on() -> None:
    rates = [0.01, 0.02, 0.03]
    scheduler = {"_name": "fixed", "force_anneal": None, "lr_shrink": 0.1, "warmup_updates": 0, "lr": rates}
    stages = {"task__growth_stages": "1:1,2:", "optimization__max_update": 0, "optimization__max_epoch": 3}
    trainer = trainer_of(lr_scheduler=scheduler, **stages)
    for epoch, rate in enumerate(rates, start=1):
        trainer.begin_epoch(epoch)
        assert trainer.get_lr() == rate
        assert train(trainer, 1) == [(min(epoch, 2), rate)]


# --- moving average --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("precise", "half"), [(False, False), (True, False), (True, True)])
def test_the_moving_average_grows_as_the_model_does(precise: bool, half: bool) -> None:
    """Its float32 copy too, which keeps what the type of a model in bfloat16 cannot hold."""
    decay = 0.75
    options = {"ema__store_ema": True, "ema__ema_decay": decay, "ema__ema_fp32": precise, "common__bf16": half}
    trainer = trainer_of(**options, model__share_all_embeddings=False)
    average = {name: value.float().clone() for name, value in trainer.get_model().state_dict().items()}
    trainer.ema  # noqa: B018  # built at its first use, as fairseq does before training
    for update in range(5):
        if update in (2, 4):
            new = update // 2
            deep = grown_by_hand(trainer.get_model(), copied=new - 1).to(torch.bfloat16 if half else torch.float32)
            sources = {name: hand_source(name, copied=new - 1, layer=new) for name in deep.state_dict()}
            average = {
                name: (average[source] if source in average else deep.state_dict()[name]).float().clone()
                for name, source in sources.items()
            }
        train(trainer, 1)
        for name, value in trainer.get_model().state_dict().items():
            average[name] = decay * average[name] + (1 - decay) * value.float()
        found = trainer.ema.fp32_params if precise else trainer.ema.get_model().state_dict()
        assert_equal(dict(found), average, rtol=1e-5, atol=1e-6)


# --- precisions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["reset", "keep"])
@pytest.mark.parametrize(
    "common",
    [
        {"common__bf16": True},
        {"common__fp16": True},
        {"common__fp16": True, "common__memory_efficient_fp16": True},
    ],
    ids=str,
)
def test_half_precisions(state: str, common: dict[str, bool], monkeypatch: pytest.MonkeyPatch) -> None:
    """The type stays, the loss scale that training has found stays, and gradients are as large as in float32."""
    monkeypatch.setattr(torch.cuda, "current_device", lambda: None)  # of fairseq's flat vector
    changes = {"task__growth_optimizer_state": state, "optimizer__adam_eps": EPSILON}
    trainer = trainer_of(**changes, **common, common__fp16_init_scale=4)
    assert gradient_norms(trainer, 1) == pytest.approx(gradient_norms(exact := trainer_of(**changes), 1), rel=0.05)
    before, scaler = trainer.optimizer, trainer.optimizer.scaler
    if scaler is not None:
        scaler.loss_scale = 8.0
    assert gradient_norms(trainer, 4) == pytest.approx(gradient_norms(exact, 4), rel=0.05)
    assert trainer.optimizer is not before
    dtype = torch.bfloat16 if "common__bf16" in common else torch.float16
    assert {parameter.dtype for parameter in trainer.get_model().parameters()} == {dtype}
    assert (trainer.optimizer.scaler is None) == (scaler is None)
    assert scaler is None or trainer.optimizer.scaler.loss_scale == 8.0


def gradient_norms(trainer: Trainer, updates: int) -> list[float]:
    """The norm of each update's gradient, as it is logged."""
    norms = []
    for _ in range(updates):
        with metrics.aggregate(new_root=True) as found:
            trainer.train_step(BATCHES)
        norms.append(float(found["gnorm"].avg))
    return norms


# --- saved and resumed -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"task__growth_optimizer_state": "reset"},
        {"task__growth_optimizer_state": "keep"},
        {"task__growth_strategy": "random", "task__growth_freeze": "copied"},
        {"task__growth_init": "zero", "task__growth_freeze": "trained", "task__growth_optimizer_state": "keep"},
    ],
    ids=str,
)
def test_a_run_that_was_stopped_ends_as_one_that_was_not(options: dict[str, str], tmp_path: Path) -> None:
    """Also at a border, where the checkpoint has the depth before it; bit for bit, with dropout."""
    changes = {**options, "model__dropout": 0.2, "ema__store_ema": True}
    whole = trainer_of(**changes)
    for update in range(1, 6):
        train(whole, 1)
        save(whole, tmp_path / str(update) / "checkpoint_last.pt")
    train(whole, 1)
    for update, depth in ((1, 1), (2, 1), (3, 2), (5, 3)):
        again = trainer_of(**changes, task__save_dir=str(tmp_path / str(update)))
        assert len(again.get_model().encoder.layers) == depth
        again.load_checkpoint(str(tmp_path / str(update) / "checkpoint_last.pt"))
        train(again, 6 - update)
        assert_equal(values_of(again.get_model()), values_of(whole.get_model()))
        assert_equal(values_of(again.ema.get_model()), values_of(whole.ema.get_model()))
        assert again.get_lr() == whole.get_lr()
        assert again.lr_scheduler.state_dict() == whole.lr_scheduler.state_dict()


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "option"),
    [
        ({"distributed_training__ddp_backend": "fully_sharded"}, "--ddp-backend fully_sharded"),
        ({"optimization__use_bmuf": True}, "--use-bmuf"),
        ({"distributed_training__zero_sharding": "os"}, "--zero-sharding os .* keep"),
        ({"optimizer": {"_name": "composite"}}, "--optimizer composite .* keep"),
    ],
    ids=str,
)
def test_where_fairseq_keeps_parts_elsewhere(changes: dict[str, Any], option: str) -> None:
    trainer = SimpleNamespace(cfg=configured(**changes))
    with pytest.raises(UserError, match=option):
        require_growable_trainer(trainer, keep_moments=True)
    if option.endswith("keep"):
        require_growable_trainer(trainer, keep_moments=False)


# --- many processes --------------------------------------------------------------------------------------------------


def test_processes_that_differ_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The smallest difference in one number of one process."""
    model = nn.Linear(2, 2)
    trainer: Any = SimpleNamespace(
        data_parallel_world_size=2,
        data_parallel_process_group=None,
        device=torch.device("cpu"),
        get_model=lambda: model,
    )
    changes = [0]

    def all_gather(gathered: list[Tensor], own: Tensor, group: Any = None) -> None:
        gathered[0].copy_(own)
        gathered[1].copy_(own + changes[0])

    monkeypatch.setattr(torch.distributed, "all_gather", all_gather)
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        model.to(dtype)
        changes[0] = 0
        require_same_on_all_processes(trainer)
        changes[0] = 1
        with pytest.raises(RuntimeError, match="process 1 has other parameters than process 0"):
            require_same_on_all_processes(trainer)
