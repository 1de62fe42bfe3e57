"""``doctor``: checks the installation and suggests fixes."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import fairseq_depthwise
from fairseq_compat import diagnosis
from fairseq_compat.diagnosis import Check
from fairseq_depthwise.commands.parsers import add_parser


def add_to(subcommands: Any) -> None:
    parser = add_parser(
        subcommands,
        "doctor",
        run=run,
        help="check the installation and suggest fixes: versions, patches, devices",
        example="fairseq-depthwise doctor",
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(options: argparse.Namespace) -> int:
    """Print the diagnosis; the status is 0 if all is well, else 1."""
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
