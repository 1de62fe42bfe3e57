"""Which versions are installed, which are supported, and how to fix a difference. No other module checks versions."""

from __future__ import annotations

import importlib.util
import re
import sys
from dataclasses import dataclass
from importlib import metadata

#: The one release that the patches are written for.
FAIRSEQ_VERSION = "0.12.2"

#: The command that installs fairseq. Its own pins (omegaconf < 2.1, hydra-core < 1.1) name releases that pip 24.1 and
#: newer refuse, hence --no-deps; this distribution requires what fairseq needs.
INSTALL_FAIRSEQ = f"pip install --no-deps fairseq=={FAIRSEQ_VERSION}"


@dataclass(frozen=True)
class Supported:
    """A distribution and the versions it is tested with: from ``first``, and below ``below``."""

    distribution: str
    first: str
    below: str

    @property
    def requirement(self) -> str:
        return f"{self.distribution}>={self.first},<{self.below}"

    @property
    def fix(self) -> str:
        """The command that installs such a version."""
        if self.distribution == "fairseq":
            return INSTALL_FAIRSEQ
        return f"pip install '{self.requirement}'" if self.distribution != "python" else f"use {self.requirement}"

    def admits(self, version: str) -> bool:
        return _as_numbers(self.first) <= _as_numbers(version) < _as_numbers(self.below)


PYTHON = Supported("python", first="3.10", below="3.14")
FAIRSEQ = Supported("fairseq", first=FAIRSEQ_VERSION, below=FAIRSEQ_VERSION + ".1")

SUPPORTED: tuple[Supported, ...] = (
    Supported("torch", first="2.6", below="2.16"),
    Supported("numpy", first="1.26", below="3"),
    Supported("hydra-core", first="1.3", below="1.4"),
    Supported("omegaconf", first="2.3", below="2.4"),
    Supported("sacrebleu", first="2.3", below="3"),
    Supported("bitarray", first="2", below="4"),
    Supported("regex", first="2022", below="2100"),
    Supported("tqdm", first="4", below="5"),
    Supported("sentencepiece", first="0.1.99", below="0.3"),
    Supported("subword-nmt", first="0.3.8", below="0.4"),
    Supported("sacremoses", first="0.1", below="0.3"),
    Supported("filelock", first="3.12", below="5"),
)


#: What each extra of the installation needs; its lowest versions are those that its tests ran with.
EXTRAS: dict[str, tuple[Supported, ...]] = {
    # What writes and runs ONNX files. Older versions of onnxscript cannot export with the newest PyTorch, or write
    # operators that are refused on reading.
    "onnx": (
        Supported("onnx", first="1.17", below="2"),
        Supported("onnxscript", first="0.7.2", below="1"),
        Supported("onnxruntime", first="1.20", below="2"),
    ),
    # What writes and reads weights in a format of many programs.
    "safetensors": (Supported("safetensors", first="0.4", below="1"),),
    # What figures and the nearest permutation need.
    "analysis": (Supported("matplotlib", first="3.8", below="4"), Supported("scipy", first="1.11", below="2")),
    # What report reads event files with.
    "tensorboard": (Supported("tensorboard", first="2.20", below="3"),),
    # What translates large texts on several machines.
    "ray": (Supported("ray", first="2.55", below="3"),),
    # The server of fairseq-depthwise serve.
    "serve": (
        Supported("fastapi", first="0.162", below="1"),
        Supported("pydantic", first="2.9", below="3"),
        Supported("prometheus-client", first="0.20", below="1"),
        Supported("starlette", first="1.7", below="2"),
        Supported("uvicorn", first="0.30", below="1"),
    ),
}


def installed_version(distribution: str) -> str | None:
    """Return the installed version of a distribution, or of the interpreter; or None."""
    if distribution == "python":
        return ".".join(map(str, sys.version_info[:3]))
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def recorded_versions() -> dict[str, str]:
    """Return what a checkpoint records of the software that wrote it: name -> version of what is installed."""
    versions = {}
    for name in ("fairseq-depthwise", "fairseq", "torch", "numpy", "python"):
        version = installed_version(name)
        if version is not None:
            versions[name] = version
    return versions


def problem_of_extra(extra: str, *modules: str) -> str | None:
    """Return what is wrong with those modules of an extra that are needed, with the command that fixes it; or None.

    A version that is too new is no problem: it may work, and what does not reports it.
    """
    for module in modules:
        if importlib.util.find_spec(module) is None:
            return f"{module} is not installed; pip install 'fairseq-depthwise[{extra}]'"
    for needed in EXTRAS[extra]:
        installed = installed_version(needed.distribution)
        if needed.distribution.replace("-", "_") not in modules or installed is None:
            continue
        if _as_numbers(installed) < _as_numbers(needed.first):
            return f"{needed.distribution} {installed} is installed, and older than {needed.first}: {needed.fix}"
    return None


def missing_of_extra(extra: str) -> list[str]:
    """Return the distributions of an extra of the installation that are not installed, or too old."""
    missing = []
    for needed in EXTRAS[extra]:
        installed = installed_version(needed.distribution)
        if installed is None or _as_numbers(installed) < _as_numbers(needed.first):
            missing.append(needed.distribution)
    return missing


def fairseq_problem() -> str | None:
    """Return what is wrong with fairseq or another requirement, with the command that fixes it; or None."""
    for needed in SUPPORTED:
        if installed_version(needed.distribution) is None:
            return f"{needed.distribution} is not installed and is required: {needed.fix}"
    installed = installed_version("fairseq") or "none"
    if FAIRSEQ.admits(installed):
        return None
    return f"fairseq {FAIRSEQ_VERSION} is required, and {installed} is installed: {INSTALL_FAIRSEQ}"


def _as_numbers(version: str) -> tuple[int, ...]:
    """Return the numbers that a version begins with."""
    release = re.match(r"\d+(\.\d+)*", version)
    if release is None:
        return (0,)
    return tuple(int(part) for part in release[0].split("."))
