"""``doctor``: checks the installation and suggests fixes."""

from __future__ import annotations

import argparse
import copy
import json
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fairseq_depthwise
from fairseq_compat import UserError, diagnosis
from fairseq_compat.diagnosis import Check
from fairseq_depthwise.commands.parsers import add_parser

#: Precision -> difference of a token's log-probability from the CPU's in float32, at most: about three times what a
#: CPU's bf16 and fp16 make; float32 may be computed in TF32.
_PRECISIONS = {"float32": 5e-3, "bfloat16": 0.2, "float16": 0.03}


def add_to(subcommands: Any) -> None:
    parser = add_parser(
        subcommands,
        "doctor",
        run=run,
        help="check the installation and suggest fixes: versions, patches, devices",
        example="fairseq-depthwise doctor",
    )
    parser.add_argument(
        "--gpu", action="store_true", help="also compare every family and precision on the GPU with the CPU; a minute"
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(options: argparse.Namespace) -> int:
    """Print the diagnosis; the status is 0 if all is well, else 1."""
    checks = diagnosis.diagnose()
    if all(check.ok for check in checks):
        checks.append(_plugin())
        if options.gpu:
            checks += check_gpu()
    well = all(check.ok for check in checks)
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


def check_gpu(device: str = "cuda") -> Iterator[Check]:
    """Yield a check for each family and precision: what it computes on a GPU, compared with the CPU in float32."""
    import torch
    from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY

    from fairseq_depthwise.checkpoints.sizes import build_with_words

    if device == "cuda" and not torch.cuda.is_available():
        raise UserError(f"--gpu needs a GPU, and PyTorch {torch.__version__} finds none; install its driver")
    words = 100
    tokens = torch.randint(4, words, (4, 16), generator=torch.Generator().manual_seed(1))
    for arch in ("transformer", "depthwise_lstm_transformer", "sdt_transformer", "mute_transformer"):
        torch.manual_seed(1)
        options = Namespace(share_all_embeddings=True)
        ARCH_CONFIG_REGISTRY[arch](options)
        model = build_with_words(ARCH_MODEL_REGISTRY[arch], vars(options), words, words).eval()
        scores = {}
        for name in ("cpu", *_PRECISIONS):
            copied, read = copy.deepcopy(model), tokens
            if name != "cpu":
                copied, read = copied.to(device, getattr(torch, name)), tokens.to(device)
            with torch.no_grad():
                output = copied(read, torch.full((4,), 16, device=read.device), read)
            scores[name] = output[0].float().log_softmax(-1).cpu()
        for name, limit in _PRECISIONS.items():
            difference = float((scores[name] - scores["cpu"]).abs().max())
            fix = "" if difference <= limit else f"it may be {limit}; run the tests with `pytest -m gpu`"
            yield Check(f"{arch}, {name}", f"log-probabilities differ from the CPU's by {difference:.1e}", fix)
