"""``doctor``: checks the installation and suggests fixes.

example:
  fairseq-depthwise doctor
"""

from __future__ import annotations

import argparse
import copy
import importlib
import os
import subprocess
import sys
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import fairseq_depthwise
from fairseq_compat import UserError, versions
from fairseq_compat.errors import named
from fairseq_compat.process import processor_facts
from fairseq_depthwise.commands.parsers import add_json
from fairseq_depthwise.tables import json_text

#: Precision -> largest accepted difference of a token's log-probability from the CPU's in float32: about three times
#: the difference of bf16 and fp16 on a CPU; float32 may be computed in TF32.
_PRECISIONS = {"float32": 5e-3, "bfloat16": 0.2, "float16": 0.03}


@dataclass(frozen=True)
class Check:
    """One line of the diagnosis: name and state of the checked part, and how to fix it, empty if it is right."""

    name: str
    state: str
    fix: str = ""

    @property
    def ok(self) -> bool:
        return not self.fix


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--gpu", action="store_true", help="also compare every family and precision on the GPU with the CPU; a minute"
    )
    parser.add_argument("--verbose", action="store_true", help="also list the faults of fairseq that are patched")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Print the diagnosis; the status is 0 if all is well, else 1."""
    checks = diagnose()
    # The plugin imports fairseq, which must be right.
    if all(check.ok for check in checks):
        checks.append(_plugin())
        if options.gpu:
            checks += check_gpu()
    wrong = [check.name for check in checks if not check.ok]
    patches = [] if wrong else patches_of_fairseq()
    extras = {extra: versions.missing_of_extra(extra) for extra in versions.EXTRAS}

    if options.json:
        lines = [{"name": check.name, "found": check.state, "ok": check.ok, "fix": check.fix} for check in checks]
        patched = [{"modules": modules, "why": why} for modules, why in patches]
        print(json_text({"ok": not wrong, "checks": lines, "extras": extras, "patches": patched}))
        return 1 if wrong else 0

    print(f"{len(wrong)} to fix: {', '.join(wrong)}\n" if wrong else "all is well\n")
    width = max(len(check.name) for check in checks)
    for check in checks:
        print(f"{'ok   ' if check.ok else 'WRONG'}  {check.name:{width}}  {check.state}")
        if not check.ok:
            print(f"       {'':{width}}  fix: {check.fix}")
    print()
    for extra, missing in extras.items():
        state = f"without {', '.join(missing)}: pip install 'fairseq-depthwise[{extra}]'" if missing else "installed"
        print(f"extra  {extra:{width}}  {state}")
    if wrong:
        return 1

    print(f"\ncomputes on: {devices()}")
    if options.verbose:
        print("\nadjusted when fairseq is imported, because without it:")
        for modules, why in patches:
            print(f"- {why} [{modules}]")
    else:
        print(f"faults of fairseq that are patched: {len(patches)}; --verbose lists them")
    return 0


def diagnose() -> list[Check]:
    """Run all checks of the installation, in the order in which they should be fixed."""
    checks = [_version(supported) for supported in (versions.PYTHON, *versions.SUPPORTED, versions.FAIRSEQ)]
    checks.append(_hook())
    # While something above is wrong, imports fail in ways of their own.
    if all(check.ok for check in checks):
        checks.append(_imports())
    return checks


def _version(supported: versions.Supported) -> Check:
    installed = versions.installed_version(supported.distribution)
    if installed is not None and supported.admits(installed):
        return Check(supported.distribution, installed)
    return Check(supported.distribution, installed or "not installed", supported.fix)


def _hook() -> Check:
    """Check that a new interpreter starts with the hook; this one may have got it by an import."""
    question = "import sys; sys.exit(not any(type(finder).__name__ == 'PatchingFinder' for finder in sys.meta_path))"
    environment = {**os.environ, "PYTHONSAFEPATH": "1"}  # no modules of the current folder
    started = subprocess.run([sys.executable, "-c", question], env=environment, check=False, capture_output=True)
    if started.returncode == 0:
        return Check("start-up hook", "active")
    fix = (
        "install into a site-packages folder: pip install --force-reinstall --no-deps fairseq-depthwise "
        "(folders made by pip install --target, and python -S, read no start-up hooks)"
    )
    return Check("start-up hook", "not active", fix)


def _imports() -> Check:
    """Check that fairseq and its compiled parts can be imported."""
    for module in ("fairseq", "fairseq.data.data_utils_fast", "fairseq.data.token_block_utils_fast"):
        try:
            importlib.import_module(module)
        except Exception as error:
            fix = f"{versions.FAIRSEQ.fix} --force-reinstall --no-binary fairseq, with a C++ compiler installed"
            return Check("import fairseq", f"{module}: {named(error)}", fix)
    return Check("import fairseq", "works")


def _plugin() -> Check:
    """Check that the plugin's names are registered, and by the copy that is running."""
    from fairseq.models import MODEL_REGISTRY

    folder = Path(fairseq_depthwise.__file__).parent
    if "depthwise_lstm_transformer" not in MODEL_REGISTRY:
        return Check("plugin", "not registered", f"pass --user-dir {folder} to fairseq's commands")
    return Check("plugin", f"fairseq_depthwise {fairseq_depthwise.__version__} in {folder}")


def check_gpu(device: str = "cuda") -> Iterator[Check]:
    """Yield a check for each family and precision: the model's output on a GPU, compared with the CPU in float32."""
    import torch
    from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY

    from fairseq_depthwise.checkpoints.sizes import build_with_words

    if device == "cuda" and not torch.cuda.is_available():
        raise UserError(f"--gpu needs a GPU, and PyTorch {torch.__version__} finds none; install its driver")
    words = 100
    batch = torch.randint(4, words, (4, 16), generator=torch.Generator().manual_seed(1))  # source and target alike

    @torch.no_grad()
    def log_probabilities(model: torch.nn.Module, tokens: torch.Tensor) -> torch.Tensor:
        lengths = torch.full((len(tokens),), tokens.size(1), device=tokens.device)
        logits = model(tokens, lengths, tokens)[0]
        return logits.float().log_softmax(-1).cpu()

    # Stock fairseq's model shows whether a difference is the plugin's.
    for arch in ("transformer", "depthwise_lstm_transformer", "sdt_transformer", "mute_transformer"):
        torch.manual_seed(1)
        options = Namespace(share_all_embeddings=True)
        ARCH_CONFIG_REGISTRY[arch](options)
        model = build_with_words(ARCH_MODEL_REGISTRY[arch], vars(options), words, words).eval()
        expected = log_probabilities(model, batch)
        for name, limit in _PRECISIONS.items():
            copied = copy.deepcopy(model).to(device, getattr(torch, name))
            scores = log_probabilities(copied, batch.to(device))
            difference = float((scores - expected).abs().max())
            fix = "" if difference <= limit else f"it may be {limit}; run the tests with `pytest -m gpu`"
            yield Check(f"{arch}, {name}", f"log-probabilities differ from the CPU's by {difference:.1e}", fix)


def patches_of_fairseq() -> list[tuple[str, str]]:
    """Return (patched modules, fault without the patch) for every patch."""
    from fairseq_compat.patches import PATCHES

    patches = []
    for patch in PATCHES:
        modules = ", ".join(patch.modules) or f"every module of fairseq that mentions {patch.mentioned}"
        patches.append((modules, patch.fault))
    return patches


def devices() -> str:
    """Return the devices that this PyTorch can compute on, as text."""
    import torch

    if torch.cuda.is_available():
        count = torch.cuda.device_count()
        return f"{count} GPU{'s' if count > 1 else ''}: {torch.cuda.get_device_name(0)}"
    threads = f"CPU, {torch.get_num_threads()} threads"
    flags = processor_facts().get("flags", "").split()
    if "amx_bf16" in flags:
        return f"{threads}, bf16 in hardware (AMX): try --bf16"
    return threads
