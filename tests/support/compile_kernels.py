"""Compiles the cell's Triton kernels for a GPU that need not be here, and prints one line of JSON for each program.

A process of its own: where Triton's interpreter was chosen, there is no compiler. What is compiled comes from calls of
the project's own functions, whose starts of programs are recorded instead of done.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from fairseq_depthwise.models.depthwise_lstm.kernels import triton_gate_update, triton_norm_activation
from fairseq_depthwise.models.depthwise_lstm.kernels.triton_rows import launch_options

POINTERS = {torch.float32: "*fp32", torch.bfloat16: "*bf16", torch.float16: "*fp16", torch.uint8: "*u8"}
NUMBERS = {int: "i32", float: "fp32"}

#: (type of the products, type of the norms and the cell state): float32, pure half precision, autocast.
TYPES = (
    (torch.float32, torch.float32),
    (torch.bfloat16, torch.bfloat16),
    (torch.float16, torch.float16),
    (torch.bfloat16, torch.float32),
)
#: (width, width of the hidden net, activation, whether there is dropout); each of ARCHES takes each with another type.
SIZES = ((192, 512, "gelu", True), (512, 2048, "glu", True), (768, 768, "relu", False), (1024, 4096, "glu", False))


ARCHES = (80, 90, 100, 120)


def starts(number: int, turn: int) -> list[tuple[Any, tuple[Any, ...], int, dict[str, Any]]]:
    """Return (kernel, arguments, columns, constants) of a step forward and backward."""
    (dtype, state), (width, hidden_width, activation, dropout) = TYPES[number], SIZES[(number + turn) % len(SIZES)]
    recorded: list[Any] = []

    def record(kernel: Any, programs: int, *arguments: Any, columns: int, **constants: Any) -> None:
        recorded.append((kernel, arguments, columns, constants))

    triton_gate_update.start_programs = triton_norm_activation.start_programs = record
    rows, result_width = 3, hidden_width // 2 if activation == "glu" else hidden_width

    def leaf(*size: int, dtype: torch.dtype) -> torch.Tensor:
        return torch.zeros(size, dtype=dtype, requires_grad=True)

    options: dict[str, Any] = {"scale": 1.1, "eps": 1e-6}
    keep = torch.ones(rows, result_width, dtype=torch.bool) if dropout else None
    norm, gate_norm = leaf(hidden_width, dtype=state), leaf(3, width, dtype=state)
    projected, hidden = leaf(rows, hidden_width, dtype=dtype), leaf(rows, width, dtype=dtype)
    activated = triton_norm_activation.norm_activation(
        projected, norm, norm, activation=activation, keep=keep, **options
    )
    activated.sum().backward()
    keep = torch.ones(rows, width, dtype=torch.bool) if dropout else None
    cell, gates = leaf(rows, width, dtype=state), leaf(rows, 3 * width, dtype=dtype)
    output, above = triton_gate_update.gate_update(
        gates, gate_norm, gate_norm, hidden, cell, cell if dropout else None, keep=keep, joint=dropout, **options
    )
    # The top layer's cell state has no gradient.
    (output.sum() + above.sum() if dropout else output.sum()).backward()
    return recorded


def compile_for(arch: int, kernel: Any, arguments: tuple[Any, ...], columns: int, constants: dict[str, Any]) -> Any:
    """Return what Triton compiles for one start of a kernel."""
    given = dict(zip(kernel.arg_names, arguments, strict=False))
    none = {name: None for name, value in given.items() if value is None}
    signature = dict.fromkeys([*none, *constants], "constexpr")
    for name, value in given.items():
        if value is not None:
            signature[name] = POINTERS[value.dtype] if isinstance(value, torch.Tensor) else NUMBERS[type(value)]
    aligned = [index for index, value in enumerate(given.values()) if isinstance(value, torch.Tensor)]
    source = ASTSource(
        fn=kernel,
        signature={name: signature[name] for name in kernel.arg_names},
        constexprs={**none, **constants},
        attrs={(index,): [["tt.divisibility", 16]] for index in aligned},
    )
    return triton.compile(source, target=GPUTarget("cuda", arch, 32), options=launch_options(columns))


for arch in map(int, sys.argv[1:]):
    turn = ARCHES.index(arch) if arch in ARCHES else 0
    for number in range(len(TYPES)):
        for kernel, arguments, columns, constants in starts(number, turn):
            compiled = compile_for(arch, kernel, arguments, columns, constants)
            line = {"arch": arch, "kernel": kernel.__name__, "type": number, "width": constants["width"]}
            line["targets"] = [row for row in compiled.asm["ptx"].splitlines() if row.startswith(".target")]
            line["header"] = compiled.asm["cubin"][:64].hex()
            print(json.dumps({**line, "shared": compiled.metadata.shared}))
