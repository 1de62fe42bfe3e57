"""``doctor``: checks the installation and suggests fixes."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fairseq_depthwise
from fairseq_compat import UserError, diagnosis
from fairseq_compat.diagnosis import Check
from fairseq_depthwise.commands.parsers import add_parser
from fairseq_depthwise.tables import markdown

if TYPE_CHECKING:
    from fairseq_depthwise.evaluation.device_check import Row, Size


def add_to(subcommands: Any) -> None:
    parser = add_parser(
        subcommands,
        "doctor",
        run=run,
        help="check the installation and suggest fixes: versions, patches, devices",
        example="fairseq-depthwise doctor",
    )
    parser.add_argument(
        "--gpu", action="store_true",
        help="check and time every family and precision on the GPU, and stock fairseq; a few minutes",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(options: argparse.Namespace) -> int:
    """Print the diagnosis; the status is 0 if all is well, else 1."""
    if options.gpu:
        return check_gpu("cuda", as_json=options.json)
    checks = diagnosis.diagnose()
    well = all(check.ok for check in checks)
    if well:
        checks.append(_plugin())
        well = checks[-1].ok
    patches = diagnosis.patches() if well else []
    if options.json:
        lines = [{"name": check.name, "found": check.found, "ok": check.ok, "fix": check.fix} for check in checks]
        patched = [{"modules": modules, "why": why} for modules, why in patches]
        print(json.dumps({"ok": well, "checks": lines, "patches": patched}, indent=2))
        return 0 if well else 1

    width = max(len(check.name) for check in checks)
    for check in checks:
        print(f"{'ok   ' if check.ok else 'WRONG'}  {check.name:{width}}  {check.found}")
        if not check.ok:
            print(f"       {'':{width}}  fix: {check.fix}")
    if well:
        print(f"\ncomputes on: {diagnosis.devices()}")
        print("\nadjusted when fairseq is imported, because without it:")
        for modules, why in patches:
            print(f"- {why} [{modules}]")
        print("\nall is well")
    else:
        wrong = [check.name for check in checks if not check.ok]
        print(f"\n{len(wrong)} to fix: {', '.join(wrong)}")
    return 0 if well else 1


def _plugin() -> Check:
    """Check that the plugin's names are registered, and by the copy that is running."""
    from fairseq.models import MODEL_REGISTRY

    folder = Path(fairseq_depthwise.__file__).parent
    if "depthwise_lstm_transformer" not in MODEL_REGISTRY:
        return Check("plugin", "not registered", f"pass --user-dir {folder} to fairseq's commands")
    return Check("plugin", f"fairseq_depthwise {fairseq_depthwise.__version__} in {folder}")


def check_gpu(device: str, *, as_json: bool, size: Size | None = None, isolated: bool = True) -> int:
    """Print how all families compute on a device as a Markdown table; the status is 0 if all are right, else 1.

    Raises:
        UserError: there is no GPU.
    """
    import torch

    if device == "cuda" and not torch.cuda.is_available():
        built = f"CUDA {torch.version.cuda}" if torch.version.cuda else "a CPU only"
        raise UserError(
            f"--gpu needs a GPU, and PyTorch finds none: PyTorch {torch.__version__} is built for {built}; where there "
            "is one, install its driver, and a PyTorch that is built for it"
        )
    from fairseq_depthwise.evaluation.device_check import MODELS, PRECISIONS, check_device

    rows: list[Row] = []
    facts = diagnosis.device_facts(device)
    for row in check_device(device, size, isolated=isolated):
        rows.append(row)
        done = f"{len(rows)} of {len(MODELS) * len(PRECISIONS)}"
        print(f"{done}: {row.model}, {row.precision}: {row.status}", file=sys.stderr)
    if as_json:
        print(json.dumps({"facts": facts, "rows": [asdict(row) for row in rows]}, indent=2))
    else:
        print("".join(f"- {name}: {value}\n" for name, value in facts.items()))
        print(markdown([_COLUMNS, *(_cells(row, rows) for row in rows)]))
        print("".join(f"- {row.model}, {row.precision}: {row.remark}\n" for row in rows if row.remark), end="")
        print(
            "differences from float32 on the CPU: of the gradients, by their length; of a token's log-probability, the "
            "largest.\nbold: times as fast as stock in the same precision"
        )
    return 0 if all(row.status == "ok" for row in rows) else 1


_COLUMNS = ("model", "precision", "status", "gradients", "scores", "training, tokens/s", "beam 4, sentences/s")


def _cells(row: Row, rows: list[Row]) -> list[str]:
    """Return a line of the table; its times are compared with the first model's in the same precision."""
    stock = next(other for other in rows if other.precision == row.precision)
    differences = ["-" if value is None else f"{value:.1e}" for value in (row.gradients, row.scores)]
    rates = []
    for value, other in ((row.training, stock.training), (row.search, stock.search)):
        ratio = "" if value is None or other is None or row is stock else f", **{value / other:.2f}**"
        rates.append("-" if value is None else f"{value:,.0f}{ratio}")
    return [row.model, row.precision, row.status, *differences, *rates]
