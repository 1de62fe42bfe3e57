"""Growth of any connection by any strategy: where weights go, what computes the same, files as running models."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from fairseq.optim import FairseqOptimizer
from growing_trainer import save, train, trainer_of
from growth_by_hand import build, scores, trained
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tiny_models import SOURCE, TARGET
from torch import Tensor, nn

from fairseq_compat import UserError
from fairseq_depthwise import cli
from fairseq_depthwise.growth.freezing import FREEZES, LastGrowth
from fairseq_depthwise.growth.layer_sources import INITS, STRATEGIES, layer_sources
from fairseq_depthwise.growth.optimizer_moments import give_moments, moments_of
from fairseq_depthwise.growth.parameter_map import grow_model

pytestmark = pytest.mark.filterwarnings("ignore:.torch.cuda.amp.autocast:FutureWarning")  # fairseq's call

#: What connects the layers of both stacks (of the encoder alone where there are blocks) -> its options.
FORMS: dict[str, dict[str, Any]] = {
    "residual": {},
    "residual, scaled": {"norm_scaling": True},
    "blocks": {"encoder_block_size": 1},
    "blocks of 2": {"encoder_block_size": 2},
    "average": {},
    "attention": {},
    "attention by 2": {"encoder_block_size": 2},
    "hyper": {},
    "hyper on a manifold": {"hyper_manifold": True, "hyper_streams": 3},
    "value-residual": {},
    **{f"{name} of sub-layers": {"connection_unit": "sub-layer"} for name in ("average", "attention", "hyper")},
    "attention by 2 of sub-layers": {"encoder_block_size": 2, "connection_unit": "sub-layer"},
    "hyper by permutations": {"hyper_manifold": "permutations", "hyper_streams": 3, "connection_unit": "sub-layer"},
    "hyper by the identity": {"hyper_manifold": "identity"},
}

#: Where new layers that add nothing change nothing; anywhere if not here.
ON_TOP = ("residual, scaled", "hyper on a manifold", "hyper by permutations")
NOWHERE = ("attention", "attention by 2", "attention of sub-layers", "attention by 2 of sub-layers")


class Case(NamedTuple):
    """A stack that grows."""

    form: str
    strategy: str
    depth: int
    sources: Sequence[int | None]

    @property
    def connection(self) -> str:
        return self.form.replace(",", " ").split()[0]

    @property
    def side(self) -> str:
        return "decoder" if not self.block_size and self.depth % 2 else "encoder"

    @property
    def block_size(self) -> int:
        return FORMS[self.form].get("encoder_block_size", 0)

    @property
    def units(self) -> int:
        return {"encoder": 2, "decoder": 3}[self.side] if "connection_unit" in FORMS[self.form] else 1

    def by_units(self) -> Case:
        """The same with sub-layers as layers, where these are connected."""
        of_units = ([None] * self.units if one is None else range(one * self.units, (one + 1) * self.units)
                    for one in self.sources)  # fmt: skip
        return self._replace(depth=self.depth * self.units, sources=[one for some in of_units for one in some])

    def options(self, depth: int) -> dict[str, Any]:
        one = {"encoder_block_size": 0, **FORMS[self.form], f"{self.side}_connection": self.connection}
        other = "decoder" if self.side == "encoder" else "encoder"
        return {**one, f"{self.side}_layers": depth, f"{other}_layers": 1, f"{other}_connection": "residual"}

    def grow(self, model: nn.Module, init: str = "copy") -> Any:
        options = self.options(len(self.sources))
        return grow_model(model, lambda: build("sdt_transformer", **options), {self.side: self.sources}, init=init)

    def trained(self) -> nn.Module:
        return trained("sdt_transformer", **self.options(self.depth))

    def is_new(self, layer: int) -> bool:
        return self.sources[layer] is None or self.sources.index(self.sources[layer]) < layer


def _cases() -> list[Case]:
    """All that can grow: from 1 to 4 layers, to up to 8."""
    found = []
    for form, options in FORMS.items():
        for strategy in STRATEGIES:
            for depth in (1, 2, 3, 4):
                block_size = options.get("encoder_block_size", 0)
                if block_size and depth % block_size:
                    continue
                for layers in range(depth + 1, 9):
                    try:
                        sources = layer_sources(depth, layers, strategy, block_size)
                    except UserError:
                        continue
                    found.append(Case(form, strategy, depth, sources))
    return found


any_case = given(st.sampled_from(_cases()))
#: The same every time; a case is small, so none is made smaller.
some = settings(max_examples=50, deadline=None, derandomize=True, phases=[Phase.generate])


# --- copies ----------------------------------------------------------------------------------------------------------


def expected_weights(case: Case, old: nn.Module, fresh: nn.Module) -> dict[str, Tensor]:
    """What a grown connection has, name by name, each kind of connection by itself."""
    weights: dict[str, Tensor] = {name: value.clone() for name, value in fresh.state_dict().items()}
    units, case = case.units, case.by_units()
    before, depth, layers = old.state_dict(), case.depth, len(case.sources)
    weights |= {name: value for name, value in before.items() if name.startswith("final_norm")}
    step = max(1, case.block_size)
    for layer, source in enumerate(case.sources):
        if case.connection == "hyper" and source is not None:
            for name in before:
                if name.startswith(f"mixings.{source}."):
                    weights[name.replace(f".{source}.", f".{layer}.", 1)] = before[name]
        if case.connection == "blocks" and source is not None and layer % step == step - 1:
            for part in ("weight", "bias"):
                weights[f"norms.{layer // step}.{part}"] = before[f"norms.{source // step}.{part}"]
        # Row l - 1 is what layer l reads with; the lowest has none, and its copies take the next layer's.
        if case.connection in ("attention", "value-residual") and layer and source is not None:
            row = f"rows.{(source or units) - 1}"
            weights[f"rows.{layer - 1}"] = before.get(row, weights[f"rows.{layer - 1}"])
        if case.connection == "average" and source is not None:
            weights[f"rows.{layer}"] = average_row(case, layer, before[f"rows.{source}"])
    if case.connection == "attention":
        weights[f"rows.{layers - 1}"] = before[f"rows.{depth - 1}"]  # the output's
    if case.connection == "blocks":
        weights |= {name: value for name, value in before.items() if name.startswith("rows.")}
    return weights


def average_row(case: Case, layer: int, row: Tensor) -> Tensor:
    """A copy weighs the layers just below it, where they are copies, too; an old layer weighs old ones."""
    result = row.new_zeros(layer + 2)
    result[0] = row[0]
    for below in range(len(row) - 1):
        for place in range(layer, -1, -1):
            if case.sources[place] == below and (case.is_new(layer) or not case.is_new(place)):
                result[1 + place] = row[1 + below]
                break
    return result


class Sgd(FairseqOptimizer):
    """Something that fairseq takes for an optimizer."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__(None)
        self._optimizer = torch.optim.SGD(list(model.parameters()), lr=0.1)


@some
@any_case
def test_what_belongs_to_a_layer_moves_with_it(case: Case) -> None:
    """Also the optimizer's moments, which are the parameters' values here."""
    model, shallow = case.trained(), case.trained()
    optimizer = Sgd(model)
    for parameter in model.parameters():
        optimizer.optimizer.state[parameter] = {"momentum_buffer": parameter.detach().clone()}
    moments = moments_of(optimizer, model)
    names = case.grow(model)
    fresh = build("sdt_transformer", **case.options(len(case.sources)))

    connections = [getattr(one, case.side).connection for one in (shallow, fresh, model)]
    expected, found = expected_weights(case, *connections[:2]), connections[2].state_dict()
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.equal(found[name], value), name
    stacks = [getattr(one, case.side).layers for one in (shallow, model)]
    for layer, source in zip(stacks[1], case.sources, strict=True):
        if source is not None:
            assert_same_values(layer.state_dict(), stacks[0][source].state_dict())

    give_moments(grown := Sgd(model), model, moments, names)
    for name, parameter in model.named_parameters():
        known = grown.optimizer.state.get(parameter)
        assert (not known) == (names.sources[name] is None)
        if known:
            assert torch.equal(known["momentum_buffer"], parameter), name


def assert_same_values(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], value) for name, value in expected.items())


# --- zero ------------------------------------------------------------------------------------------------------------


@some
@any_case
def test_with_zero_it_computes_the_same_or_is_refused(case: Case) -> None:
    model = case.trained().double()
    before = scores(model)
    is_on_top = not any(case.is_new(layer) for layer in range(case.depth))
    if case.form in NOWHERE or (case.form in ON_TOP and not is_on_top):
        with pytest.raises(UserError, match="--growth-init zero"):
            case.grow(model, "zero")
        torch.testing.assert_close(scores(model), before, rtol=0, atol=0)
        return
    growth = case.grow(model, "zero")
    torch.testing.assert_close(scores(model), before, rtol=1e-9, atol=1e-9)
    # Nothing new is cut off: it learns in a few updates, though all that was there before is frozen.
    LastGrowth(growth.new, "trained").freeze(model)
    start = {name: value.clone() for name, value in getattr(model, case.side).named_parameters()}
    optimizer = torch.optim.Adam([one for one in model.parameters() if one.requires_grad], lr=0.01)
    for _ in range(4):
        optimizer.zero_grad()
        model(SOURCE, None, TARGET)[0].square().sum().backward()
        optimizer.step()
    for name, value in getattr(model, case.side).named_parameters():
        if name.startswith("layers.") and "key_projection.bias" not in name:
            assert torch.equal(value, start[name]) != case.is_new(int(name.split(".")[1])), name


# --- files -----------------------------------------------------------------------------------------------------------


@settings(some, max_examples=15)
@given(
    st.sampled_from([case for case in _cases() if case.depth < 4 and len(case.sources) < 6]),
    st.sampled_from(INITS),
    st.sampled_from(FREEZES),
)
def test_a_file_grows_as_a_running_model(case: Case, init: str, frozen: str) -> None:
    """Two updates, growth, and one more update; the moving average, too; bit for bit."""
    options = {f"model__{name}": value for name, value in case.options(case.depth).items()}
    options |= {"task__growth_side": case.side, "task__growth_strategy": case.strategy, "task__growth_init": init}
    options |= {"task__growth_freeze": frozen}
    options |= {"task__growth_stages": f"{case.depth}:2u,{len(case.sources)}:", "ema__store_ema": True}
    words = ["--layers", str(len(case.sources)), "--side", case.side, "--strategy", case.strategy, "--init", init]
    words += ["--freeze", frozen]
    try:
        running = trainer_of(**options)
    except UserError:
        assert init == "zero"
        assert case.form in NOWHERE + ON_TOP
        return
    train(running, 2)
    with tempfile.TemporaryDirectory() as folder:
        path, deep = (Path(folder) / name for name in ("shallow.pt", "checkpoint_last.pt"))
        save(running, path)
        assert cli.main(["grow", str(path), str(deep), *words]) == 0
        train(running, 1)
        resumed = trainer_of(**options, task__save_dir=folder)
        resumed.load_checkpoint(str(deep))
        train(resumed, 1)
    assert_same_values(resumed.get_model().state_dict(), running.get_model().state_dict())
    assert_same_values(resumed.ema.get_model().state_dict(), running.ema.get_model().state_dict())
