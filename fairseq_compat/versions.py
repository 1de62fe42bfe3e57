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
    needed: bool = True

    @property
    def requirement(self) -> str:
        return f"{self.distribution}>={self.first},<{self.end}"

    def admits(self, version: str) -> bool:
        return _as_numbers(self.first) <= _as_numbers(version) < _as_numbers(self.end)


PYTHON = Supported("python", "3.10", "3.14")

SUPPORTED: tuple[Supported, ...] = (
    Supported("torch", "2.4", "2.14"),
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
)


def installed_version(distribution: str) -> str | None:
    """The installed version of a distribution, or None."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def python_version() -> str:
    """The running interpreter's version, as ``3.12.1``."""
    return ".".join(str(part) for part in sys.version_info[:3])


def fairseq_problem() -> str | None:
    """One sentence if fairseq is missing or not the supported release, with the command that mends it."""
    found = installed_version("fairseq")
    if found == FAIRSEQ_VERSION:
        return None
    state = "fairseq is not installed" if found is None else f"fairseq {found} is installed"
    return f"{state}, and this plugin works with fairseq {FAIRSEQ_VERSION}: {INSTALL_FAIRSEQ}"


def _as_numbers(version: str) -> tuple[int, ...]:
    release = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(part) for part in release[0].split(".")) if release else (0,)
