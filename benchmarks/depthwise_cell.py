"""The depth-wise LSTM cell alone: one pass forward and backward with each kernel, beside the plain form.

All kernels run by turns in one process. Progress goes to stderr, the section of the page to stdout.

    python benchmarks/depthwise_cell.py --device cuda --output docs/benchmarks.md
    python benchmarks/depthwise_cell.py --device cpu --kernels compile --precisions fp32
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from machine import machine, versions
from option_types import command_of, file_to_write, names_of, whole_number
from page_sections import section, write_section
from program import run_program, tell, write_json
from side_by_side import TYPES, alternate, peak_memory, quartiles, ratios

from fairseq_compat import UserError
from fairseq_depthwise.models.depthwise_lstm.cell import DepthwiseLSTMCell, DepthwiseState, Gates, HiddenNet
from fairseq_depthwise.models.depthwise_lstm.kernels.fused_cell import KERNELS, choose_kernel
from fairseq_depthwise.tables import markdown

#: The section of the page that this program writes.
SECTION = "cell"

#: The name of the cell's plain form, which its kernels are compared with.
PLAIN = "plain"

#: How many times as fast as the plain form a kernel is to be on a GPU, and how much of its peak it may take.
SPEED_BAR, MEMORY_BAR = 1.5, 0.7

#: Passes in one measurement; on a GPU a single one is over before the clock can tell.
PASSES = {"cpu": 1, "cuda": 20}

#: Target positions of the tensors that go through the cell, T of T x B x d.
POSITIONS = 25


class CellPasses:
    """Some passes forward and backward through one cell in training; all kernels have the same weights and inputs.

    Args:
        kernel: the cell's kernel.
        width: of the state, d.
        hidden: width of the hidden net, H.
        tokens: positions that go through at once, T x B.
        device: ``cpu`` or ``cuda``.
        precision: ``fp32`` or ``bf16``.
    """

    def __init__(self, kernel: str, *, width: int, hidden: int, tokens: int, device: str, precision: str) -> None:
        torch.manual_seed(1)
        cell = DepthwiseLSTMCell(
            gates=Gates(input_dim=2 * width, embed_dim=width),
            hidden_net=HiddenNet(
                input_dim=2 * width,
                embed_dim=width,
                hidden_dim=hidden,
                dropout=0.1,
                activation_dropout=0.0,
            ),
            kernel=kernel,
        )
        place: dict[str, Any] = {"device": device, "dtype": TYPES[precision]}
        self.cell = cell.to(**place).train()
        shape = (POSITIONS, max(1, tokens // POSITIONS), width)
        self.attended, self.output, self.below = (torch.randn(shape, **place, requires_grad=True) for _ in range(3))
        self.gradients = [torch.randn(shape, **place) for _ in range(2)]
        self.passes = PASSES[device]
        self.kernel = kernel
        self.device = device

    def __call__(self, _: int = 0) -> None:
        for _pass in range(self.passes):
            above = self.cell(self.attended, DepthwiseState(output=self.output, cell=self.below))
            torch.autograd.backward([above.output, above.cell], self.gradients)
            # Gradients that stay would be added to: work and memory that no kernel has a part in.
            for tensor in (self.attended, self.output, self.below, *self.cell.parameters()):
                tensor.grad = None

    @property
    def fell_back(self) -> bool:
        """Whether the plain form was run in place of the kernel; known after the first pass."""
        used = choose_kernel(self.kernel, torch.device(self.device), fusible=True, activation="glu")
        return self.kernel not in ("auto", used)


def measure(options: argparse.Namespace, precision: str) -> dict[str, Any]:
    """Seconds of each kernel in each round, bytes at the peak on top of weights and inputs, and what is not possible.

    Returns:
        ``seconds`` and ``memory``, name -> numbers; ``missing``, names of kernels; ``passes`` of one measurement.
    """
    passes: dict[str, CellPasses] = {}
    missing = []
    # "eager" among the kernels is the plain form a second time and shows the noise of the comparison.
    for name, kernel in {PLAIN: "eager", **{kernel: kernel for kernel in options.kernels}}.items():
        candidate = CellPasses(kernel, width=options.width, hidden=options.hidden, tokens=options.tokens,
                               device=options.device, precision=precision)  # fmt: skip
        candidate()
        if candidate.fell_back:
            missing.append(name)
            tell(f"the cell's kernel {name} is not measured: it does not work here")
        else:
            passes[name] = candidate

    def say(number: int, seconds: Mapping[str, float]) -> None:
        which = "warm-up" if number < 0 else f"round {number + 1} of {options.rounds}"
        tell(f"cell {precision}, {which}: " + ", ".join(f"{name} {taken:.4f} s" for name, taken in seconds.items()))

    seconds = alternate(passes, rounds=options.rounds, warm_up=options.warm_up, device=options.device, say=say)
    # Peaks of one process say nothing on the CPU, see peak_memory.
    measured = passes if options.device == "cuda" else {}
    memory = {name: peak_memory(lambda ready=ready: ready, options.device) for name, ready in measured.items()}
    return {"precision": precision, "seconds": seconds, "memory": memory, "missing": missing,
            "passes": passes[PLAIN].passes}  # fmt: skip


def page(setup: Mapping[str, Any], results: Sequence[Mapping[str, Any]]) -> str:
    """The program's section of the page."""
    return "\n".join([*_head(setup), "", _table(setup["device"], results)])


def _head(setup: Mapping[str, Any]) -> Iterator[str]:
    yield from (
        "# The depth-wise cell alone",
        "",
        f"Made by `{setup['command']}`:",
        "one pass forward and backward in training with each kernel, and with the cell's plain form, by turns in one",
        f"process. Ratios are taken within a round; given are medians and quartiles of {setup['rounds']} rounds. A",
        "peak is what a pass needs on top of weights and inputs.",
        "",
        f"- Machine: {setup['machine']}; device {setup['device']}, threads of PyTorch: {setup['threads']}.",
        f"- Versions: {setup['versions']}.",
        f"- Width {setup['width']}, hidden net {setup['hidden']}, about {setup['tokens']} positions at once.",
    )


def _table(device: str, results: Sequence[Mapping[str, Any]]) -> str:
    lines = [["precision", "kernel", "ms", "plain ms", "times as fast", "quartiles", "bar", "peak MiB",
              "plain peak MiB", "share", "bar"]]  # fmt: skip
    for one in results:
        seconds, memory = one["seconds"], one["memory"]
        for name in (name for name in seconds if name != PLAIN):
            times = [f"{1000 * statistics.median(seconds[which]) / one['passes']:.2f}" for which in (name, PLAIN)]
            low, middle, high = quartiles(ratios(seconds, PLAIN, name))
            speed = [f"{middle:.3f}", f"{low:.3f} - {high:.3f}", _bar(device, middle >= SPEED_BAR, SPEED_BAR)]
            peaks = [""] * 4
            if memory:
                share = memory[name] / memory[PLAIN]
                peaks = [f"{memory[which] / 2**20:.0f}" for which in (name, PLAIN)]
                peaks += [f"{share:.2f}", _bar(device, share <= MEMORY_BAR, MEMORY_BAR)]
            lines.append([one["precision"], name, *times, *speed, *peaks])
        lines += [[one["precision"], name, "does not work here", *[""] * 8] for name in one["missing"]]
    return markdown(lines)


def _bar(device: str, met: bool, bar: float) -> str:
    return "" if device == "cpu" else f"{bar:g}: {'met' if met else '**not met**'}"


def parse_options(given: Sequence[str]) -> argparse.Namespace:
    """The options, with the defaults that depend on the device."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("--device", choices=("cpu", "cuda"), default="cuda", help="default: %(default)s")
    add("--precisions", type=names_of(tuple(TYPES)), default=["bf16"], metavar="LIST", help="default: bf16")
    add("--kernels", type=names_of(KERNELS), default=["compile", "triton"], metavar="LIST", help="beside the plain form"
        " (default: compile,triton)")  # fmt: skip
    add("--rounds", type=whole_number(2), default=9, metavar="N", help="rounds that count (default: %(default)s)")
    add("--warm-up", type=whole_number(0), default=2, metavar="N", help="rounds before (default: %(default)s)")
    add("--width", type=whole_number(2), default=512, metavar="N", help="of the state (default: %(default)s)")
    add("--hidden", type=whole_number(2), default=2048, metavar="N", help="of the hidden net (default: %(default)s)")
    add("--tokens", type=whole_number(1), default=16384, metavar="N", help="positions at once (default: %(default)s)")
    add("--output", type=file_to_write, metavar="FILE", help="write the section into this page as well")
    add("--json", type=file_to_write, metavar="FILE", help="write all numbers here")
    return parser.parse_args(given)


def run(options: argparse.Namespace, given: Sequence[str]) -> None:
    """Measure, print the section and write the files.

    Raises:
        UserError: there is no such device, a width is not possible, or a file not written.
    """
    if options.device == "cuda" and not torch.cuda.is_available():
        raise UserError("--device cuda: PyTorch finds no GPU here, so nothing is measured; give cpu")
    if options.hidden % 2:
        raise UserError(f"--hidden {options.hidden} is odd; the GLU halves it, so give an even number")
    setup = {
        "command": command_of(given, "depthwise_cell.py"),
        "machine": machine() + (f", {torch.cuda.get_device_name()}" if options.device == "cuda" else ""),
        "versions": versions("fairseq-depthwise", "triton"),
        "threads": torch.get_num_threads(),
        **{name: getattr(options, name) for name in ("device", "width", "hidden", "tokens", "rounds")},
    }
    results = [measure(options, precision) for precision in options.precisions]
    text = page(setup, results)
    print(section(SECTION, text), end="")
    if options.json:
        write_json(options.json, {"setup": setup, "results": results})
    if options.output:
        write_section(options.output, SECTION, text)


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = parse_options(given)
    return run_program("depthwise_cell", lambda: run(options, given))


if __name__ == "__main__":
    sys.exit(main())
