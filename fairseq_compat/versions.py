"""What is installed, what is supported, and what to do where the two differ. The only place that looks at versions."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from importlib import metadata

from fairseq_compat.import_hook import FAIRSEQ_VERSION

#: The command that installs fairseq. Its own pins (omegaconf < 2.1, hydra-core < 1.1) name releases that pip 24.1 and
#: newer refuse, hence --no-deps; this distribution requires what fairseq needs.
INSTALL_FAIRSEQ = f"pip install --no-deps fairseq=={FAIRSEQ_VERSION}"


@dataclass(frozen=True)
class Supported:
    """A distribution and the versions it is tested with: from ``first``, up to but without ``end``."""

    distribution: str
    first: str
    end: str

    @property
    def requirement(self) -> str:
        return f"{self.distribution}>={self.first},<{self.end}"

    def admits(self, version: str) -> bool:
        return _as_numbers(self.first) <= _as_numbers(version) < _as_numbers(self.end)


PYTHON = Supported("python", "3.10", "3.14")

#: The lowest PyTorch by interpreter, as pip's markers; the last that holds counts. PyTorch 2.5 was the first for Python
#: 3.13, and cannot save on 3.13.0, whose pickle refused what torch.save did (CPython's gh-125631).
LOWEST_TORCH: tuple[tuple[str, str], ...] = (
    ("python_version < '3.13'", "2.4"),
    ("python_version >= '3.13'", "2.5"),
    ("python_full_version == '3.13.0'", "2.6"),
)


def lowest_torch(python: tuple[int, int, int]) -> str:
    """Return the lowest PyTorch for an interpreter; the same as :data:`LOWEST_TORCH` says to pip."""
    if python < (3, 13, 0):
        return "2.4"
    return "2.6" if python == (3, 13, 0) else "2.5"


SUPPORTED: tuple[Supported, ...] = (
    Supported("torch", lowest_torch(sys.version_info[:3]), "2.14"),
    Supported("numpy", "1.26", "3"),
    Supported("hydra-core", "1.3", "1.4"),
    Supported("omegaconf", "2.3", "2.4"),
    Supported("sacrebleu", "2.3", "3"),
    Supported("bitarray", "2", "4"),
    Supported("regex", "2022", "2100"),
    Supported("tqdm", "4", "5"),
    Supported("sentencepiece", "0.1.99", "0.3"),
    Supported("subword-nmt", "0.3.8", "0.4"),
    Supported("sacremoses", "0.1", "0.3"),
    Supported("filelock", "3.12", "5"),
)


def installed_version(distribution: str) -> str | None:
    """Return the installed version of a distribution, or None."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def python_version() -> str:
    """Return the running interpreter's version, as ``3.12.1``."""
    return ".".join(str(part) for part in sys.version_info[:3])


def recorded_versions() -> dict[str, str]:
    """Return what a checkpoint says of the software that wrote it: name -> version, without what is not installed."""
    known = {name: installed_version(name) for name in ("fairseq-depthwise", "fairseq", "torch", "numpy")}
    return {**{name: version for name, version in known.items() if version is not None}, "python": python_version()}


def fairseq_problem() -> str | None:
    """Return what is wrong with fairseq or another requirement, with the command that fixes it; or None."""
    for needed in SUPPORTED:
        if installed_version(needed.distribution) is None:
            return f"{needed.distribution} is not installed and is required: pip install '{needed.requirement}'"
    installed = installed_version("fairseq")
    if installed == FAIRSEQ_VERSION:
        return None
    state = "fairseq is not installed" if installed is None else f"fairseq {installed} is installed"
    return f"{state}, and this plugin works with fairseq {FAIRSEQ_VERSION}: {INSTALL_FAIRSEQ}"


def _as_numbers(version: str) -> tuple[int, ...]:
    release = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(part) for part in release[0].split(".")) if release else (0,)
