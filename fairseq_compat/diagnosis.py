"""The checks of ``doctor``: what is required, what is installed, and the command that fixes it."""

from __future__ import annotations

import importlib
import subprocess
import sys
from dataclasses import dataclass

from fairseq_compat import versions
from fairseq_compat.errors import named
from fairseq_compat.patches import PATCHES
from fairseq_compat.process import processor_facts


@dataclass(frozen=True)
class Check:
    """One line of the diagnosis. ``fix`` is empty where all is well."""

    name: str
    found: str
    fix: str = ""

    @property
    def ok(self) -> bool:
        return not self.fix


def diagnose() -> list[Check]:
    """Run all checks of the installation, in the order in which they should be fixed."""
    checks = [_version(supported) for supported in (versions.PYTHON, *versions.SUPPORTED)]
    checks += [_version(versions.FAIRSEQ), _hook()]
    # It fails in a way of its own while something above is wrong.
    return [*checks, _imports()] if all(done.ok for done in checks) else checks


def devices() -> str:
    """Return what this PyTorch can compute on, in words."""
    import torch

    if torch.cuda.is_available():
        count = torch.cuda.device_count()
        return f"{count} GPU{'s' if count > 1 else ''}: {torch.cuda.get_device_name(0)}"
    threads = torch.get_num_threads()
    fast_bf16 = "amx_bf16" in processor_facts().get("flags", "").split()
    return f"CPU, {threads} threads" + (", bf16 in hardware (AMX): try --bf16" if fast_bf16 else "")


def patches() -> list[tuple[str, str]]:
    """Return (patched modules, what is wrong without it) for every patch."""
    return [
        (", ".join(patch.modules) or f"every module of fairseq that mentions {patch.mentioned}", patch.fault)
        for patch in PATCHES
    ]


def _version(supported: versions.Supported) -> Check:
    installed = versions.installed_version(supported.distribution)
    if installed is not None and supported.admits(installed):
        return Check(supported.distribution, installed)
    return Check(supported.distribution, installed or "not installed", supported.fix)


def _hook() -> Check:
    """Return whether a new interpreter starts with the hook; this one may have got it by an import."""
    question = "import sys; sys.exit(not any(type(finder).__name__ == 'PatchingFinder' for finder in sys.meta_path))"
    active = subprocess.run([sys.executable, "-c", question], check=False, capture_output=True).returncode == 0
    if active:
        return Check("start-up hook", "active")
    return Check(
        "start-up hook",
        "not active",
        "install into a site-packages folder: pip install --force-reinstall --no-deps fairseq-depthwise "
        "(folders made by pip install --target, and python -S, read no start-up hooks)",
    )


def _imports() -> Check:
    """Return whether fairseq can be imported, and its compiled parts."""
    for module in ("fairseq", "fairseq.data.data_utils_fast", "fairseq.data.token_block_utils_fast"):
        try:
            importlib.import_module(module)
        except Exception as error:
            fix = f"{versions.FAIRSEQ.fix} --force-reinstall --no-binary fairseq, with a C++ compiler installed"
            return Check("import fairseq", f"{module}: {named(error)}", fix)
    return Check("import fairseq", "works")
