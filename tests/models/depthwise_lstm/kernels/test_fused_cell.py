"""Every way through the cell against the readable one: values, gradients, precisions, fallbacks."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterator

import pytest
import torch
from random_cells import build_cell, inputs
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from triton_probe import DEVICE, PROBLEM

from fairseq_depthwise.models.depthwise_lstm.cell import HIDDEN_ACTIVATIONS, DepthwiseLSTMCell, DepthwiseState
from fairseq_depthwise.models.depthwise_lstm.kernels import first_use, fused_cell

needs_triton = pytest.mark.skipif(PROBLEM is not None, reason=str(PROBLEM))
COMPILES = pytest.mark.skipif(
    DEVICE.type == "cpu" and shutil.which("g++") is None, reason="torch.compile needs a C++ compiler on a CPU"
)
KERNELS = [pytest.param("compile", marks=(COMPILES, pytest.mark.long)), pytest.param("triton", marks=needs_triton)]

#: Relative to a tensor's largest value: each operation of the readable path rounds, the fused ones round less often.
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 3e-2}


@pytest.fixture(autouse=True)
def _fresh_choice(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No fallback of another test is remembered; with the interpreter, Triton counts as possible on a CPU."""
    if DEVICE.type == "cpu" and PROBLEM is None:
        monkeypatch.setenv("TRITON_INTERPRET", "1")
    remembered = (fused_cell._fall_back, fused_cell._triton_problem, fused_cell._compile_problem)
    for function in remembered:
        function.cache_clear()
    yield
    for function in remembered:
        function.cache_clear()


def run(cell: Callable[[Tensor, DepthwiseState], DepthwiseState], tensors: tuple[Tensor, ...]) -> list[Tensor]:
    """Output, cell state, and the gradients of inputs and parameters of a sum that both take part in."""
    assert isinstance(cell, DepthwiseLSTMCell)
    cell.zero_grad()
    leaves = [tensor.detach().requires_grad_() for tensor in tensors]
    state = cell(leaves[0], DepthwiseState(output=leaves[1], cell=leaves[2]))
    weight = torch.linspace(-1, 2, state.output.numel(), device=DEVICE).view_as(state.output)
    ((state.output * weight).sum() + (state.cell * weight.flip(0)).sum()).backward()
    grads = [leaf.grad for leaf in leaves] + [parameter.grad for parameter in cell.parameters()]
    return [one.detach().float().clone() for one in (state.output, state.cell, *grads) if one is not None]


def assert_same(found: list[Tensor], expected: list[Tensor], tolerance: float) -> None:
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance * float(other.abs().max()))


VARIANTS = {
    "glu": {},
    "gelu": {"activation": "gelu"},
    "relu": {"activation": "relu"},
    "one-layer": {"activation": "gelu", "hidden_dim": None},
    "concat": {"input_dim": 36},
    "joint-skip": {"joint": True, "skip": True},
    "skip-concat-dropout": {"skip": True, "input_dim": 36, "dropout": 0.4},
}


@pytest.mark.parametrize(
    ("kernel", "variant"),
    [pytest.param("triton", VARIANTS[name], marks=needs_triton, id=f"triton-{name}") for name in VARIANTS]
    + [
        pytest.param("compile", VARIANTS[name], marks=(COMPILES, mark), id=f"compile-{name}")
        for name, mark in (("glu", pytest.mark.slow), ("one-layer", pytest.mark.long))
    ],
)
def test_values_and_gradients_are_those_of_the_readable_cell(kernel: str, variant: dict[str, object]) -> None:
    tensors = inputs(attended=2 if "input_dim" in variant else 1)
    expected = run(build_cell(**variant), tensors)
    cell = build_cell(**variant, kernel=kernel)
    assert_same(run(cell, tensors), expected, TOLERANCE[torch.float32])
    assert fused_cell._fall_back.cache_info().misses == 0  # it was not the readable cell itself
    if not variant:
        # Another size, columns of a wider tensor (compiling for each takes long), and no gradients.
        odd = inputs(length=1 if kernel == "triton" else 2, batch=7)
        assert_same(run(cell, odd), run(build_cell(), odd), TOLERANCE[torch.float32])
    if not variant and kernel == "triton":
        wide = torch.randn(3, 4, 5, 24, generator=torch.Generator().manual_seed(3)).to(DEVICE)
        columns = (wide[0, ..., 5:17], wide[1, ..., 1:13], wide[2].transpose(0, 1)[..., :12].transpose(0, 1))
        assert_same(run(cell, columns), run(build_cell(), columns), TOLERANCE[torch.float32])
    if not variant:
        with torch.no_grad():
            found = cell(tensors[0], DepthwiseState(*tensors[1:]))
            assert_same([found.output, found.cell], expected[:2], TOLERANCE[torch.float32])
            cell.make_generation_fast_(name="cell")
            found = cell(tensors[0], DepthwiseState(*tensors[1:]))
        assert_same([found.output, found.cell], expected[:2], TOLERANCE[torch.float32])


@pytest.mark.parametrize("kernel", KERNELS)
def test_bfloat16(kernel: str) -> None:
    tensors = inputs(dtype=torch.bfloat16)
    expected = run(build_cell(), tuple(tensor.float() for tensor in tensors))
    readable = run(build_cell().bfloat16(), tensors)
    assert_same(readable, expected, TOLERANCE[torch.bfloat16])
    assert_same(run(build_cell(kernel=kernel).bfloat16(), tensors), expected, TOLERANCE[torch.bfloat16])
    assert fused_cell._fall_back.cache_info().misses == 0


@pytest.mark.parametrize("kernel", KERNELS)
def test_under_autocast_the_state_keeps_its_precision(kernel: str) -> None:
    tensors = inputs()
    with torch.autocast(DEVICE.type, dtype=torch.bfloat16):
        expected = run(build_cell(), tensors)
        cell = build_cell(kernel=kernel)
        found = run(cell, tensors)
        state = cell(tensors[0], DepthwiseState(*tensors[1:]))
    assert state.cell.dtype == state.output.dtype == torch.float32
    assert_same(found, expected, TOLERANCE[torch.bfloat16])
    assert fused_cell._fall_back.cache_info().misses == 0


@pytest.mark.parametrize("kernel", KERNELS)
def test_activation_checkpointing_repeats_the_dropout(kernel: str) -> None:
    cell = build_cell(kernel=kernel, dropout=0.4).train()
    results = []
    for recompute in (False, True):
        leaves = [tensor.detach().requires_grad_() for tensor in inputs()]
        cell.zero_grad()
        torch.manual_seed(4)

        def step(attended: Tensor, output: Tensor, past: Tensor) -> Tensor:
            return torch.cat(cell(attended, DepthwiseState(output, past)))

        result = checkpoint(step, *leaves, use_reentrant=False) if recompute else step(*leaves)
        result.square().sum().backward()
        grads = [leaf.grad for leaf in leaves] + [parameter.grad.clone() for parameter in cell.parameters()]
        results.append([result.detach(), *grads])
    assert_same(results[1], results[0], TOLERANCE[torch.float32])


@pytest.mark.skipif(DEVICE.type == "cuda", reason="on a GPU the readable cell draws its masks inside another kernel")
@pytest.mark.parametrize("kernel", KERNELS)
def test_dropout_is_that_of_the_readable_cell(kernel: str) -> None:
    results = []
    for one in ("eager", kernel):
        torch.manual_seed(4)
        results.append(run(build_cell(kernel=one, dropout=0.4).train(), inputs()))
    assert_same(results[1], results[0], TOLERANCE[torch.float32])
    assert not torch.allclose(results[0][0], run(build_cell(), inputs())[0])


@needs_triton
def test_triton_keeps_less_for_the_backward_pass() -> None:
    """c, the projections, h and the cell below; everything else is computed again."""

    def kept(kernel: str) -> int:
        cell = build_cell(width=16, hidden_dim=64, kernel=kernel)
        parameters = {parameter.data_ptr() for parameter in cell.parameters()}
        storages: dict[int, int] = {}

        def pack(tensor: Tensor) -> Tensor:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in parameters:
                storages[storage.data_ptr()] = storage.nbytes()
            return tensor

        attended, output, past = (tensor.requires_grad_() for tensor in inputs(width=16, length=8, batch=8))
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            state = cell(attended, DepthwiseState(output, past))
        assert state.cell.grad_fn is not None
        return sum(storages.values())

    assert kept("triton") <= 0.7 * kept("eager")


def choose(requested: str, device: str, activation: str) -> str:
    cell = build_cell(activation=activation)
    return fused_cell.choose_kernel(
        requested, torch.device(device), fusible=True, gates=cell.gates, net=cell.hidden_net
    )


def test_auto_is_eager_on_a_cpu() -> None:
    assert choose("auto", "cpu", "glu") == "eager"


def test_an_activation_that_the_kernels_lack_is_computed_without_them(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As any that is added to the cell's list, also under auto on a GPU where Triton works."""
    for name in ("_triton_problem", "_missing_triton"):
        monkeypatch.setattr(fused_cell, name, lambda device: None)
    monkeypatch.setattr(first_use, "find_problem", lambda device, kind: None)
    monkeypatch.setattr(fused_cell, "_first_uses", {})
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    for requested in ("auto", "triton"):
        with caplog.at_level(logging.INFO):
            assert choose(requested, "cuda", "silu") == "eager"
        assert choose(requested, "cuda", "glu") == "triton"
    assert "silu" in caplog.text
    assert set(fused_cell.TRITON_ACTIVATIONS) <= set(HIDDEN_ACTIVATIONS)
    tensors = inputs()
    found = run(build_cell(activation="silu", kernel="triton"), tensors)
    assert_same(found, run(build_cell(activation="silu"), tensors), 0)


def test_what_is_impossible_falls_back_with_one_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    cell, tensors = build_cell(kernel="triton").cpu(), tuple(tensor.cpu() for tensor in inputs())
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            found = cell(tensors[0], DepthwiseState(*tensors[1:]))
    assert caplog.text.count("--depthwise-kernel triton") == 1
    expected = build_cell().cpu()(tensors[0], DepthwiseState(*tensors[1:]))
    assert torch.equal(found.cell, expected.cell)


def test_a_kernel_that_cannot_be_built_is_tried_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A missing C++ compiler, say, shows when the first kernel is built."""
    tries = []

    def fail(device: torch.device) -> None:
        tries.append(device)
        raise RuntimeError("no compiler\nand much more")

    monkeypatch.setattr(fused_cell, "_try_compile", fail)
    cell, tensors = build_cell(kernel="compile"), inputs()
    expected = run(build_cell(), tensors)
    with caplog.at_level(logging.INFO):
        for _ in range(2):
            assert_same(run(cell, tensors), expected, TOLERANCE[torch.float32])
    assert caplog.text.count("--depthwise-kernel compile") == caplog.text.count("no compiler") == len(tries) == 1
    assert "much more" not in caplog.text


def test_linear_maps_with_hooks_are_called_themselves() -> None:
    """Quantization noise acts in a hook before the call."""
    cell, calls = build_cell(kernel="compile"), []
    cell.gates.projection.register_forward_pre_hook(lambda *_: calls.append(1))
    tensors = inputs()
    cell(tensors[0], DepthwiseState(*tensors[1:]))
    assert calls == [1]
