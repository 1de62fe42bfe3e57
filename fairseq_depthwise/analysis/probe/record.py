"""The results of a probe so far, in a folder from which it continues after it was stopped.

``probe.json`` has the settings, the finished rows, and the names of the files that were written: ``maps.pt`` with the
fitted linear layers, and in ``hypotheses/`` and ``checkpoints/`` one for each row. A name is there before its file is
written; what is not named is not read, and not replaced.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from fairseq_compat import UserError, belonging, checkpoints
from fairseq_compat.files import atomic_write, require_file
from fairseq_depthwise.analysis.probe.linear_fit import LinearFit
from fairseq_depthwise.checkpoints.checkpoint import Checkpoint
from fairseq_depthwise.models.linearized.model import ARCHITECTURE, plain_options

#: Name of the row in which no layer is replaced.
NONE = "none"

#: The only names of files that are removed, whatever ``probe.json`` says.
_OWN = re.compile(r"maps\.pt|hypotheses/none\.txt|(hypotheses|checkpoints)/(en|de)coder\.\d+(\.output)?\.(txt|pt)")

_FOLDERS = ("hypotheses", "checkpoints")

#: (layer, state) -> linear layer.
Fits = dict[tuple[str, str], LinearFit]


@dataclass(frozen=True)
class ProbeRow:
    """The score of a model with one layer replaced, ``encoder.1`` or ``none``, and the fit of its linear layer.

    ``state`` says which part of a pair (Out, Cell) was replaced, "pair" or "output"; empty for layers with one output.
    """

    layer: str
    state: str
    score: float
    metric: str
    signature: str
    error: float | None = None
    unexplained: float | None = None
    positions: int | None = None


class ProbeRecord:
    """A folder with the results of a probe so far, which belongs to the command and had the same settings before.

    ``settings`` are all that results depend on; ``force`` removes the results of an earlier call.
    """

    def __init__(self, folder: str, settings: Mapping[str, Any], *, force: bool = False) -> None:
        self.folder = Path(folder)
        self.settings = settings
        #: Finished rows.
        self.rows: dict[tuple[str, str], ProbeRow] = {}
        #: Names of the files that were written, in the folder.
        self.files: list[str] = []
        for folder_of_rows in (self.folder, *(self.folder / name for name in _FOLDERS)):
            if folder_of_rows.is_symlink():
                raise UserError(f"--output {folder}: {folder_of_rows} is a link; give a folder of its own")
            folder_of_rows.mkdir(parents=True, exist_ok=True)
        self._file, self._maps = self.folder / "probe.json", self.folder / "maps.pt"
        record = self._load() if self._file.exists() else {"files": []}
        if "rows" in record and not force:
            self._resume(record)
        self._require_free(record["files"])
        if "rows" in record and force:
            # A process that is killed here leaves a record of no settings, so that what is left is not taken for new.
            self.files = list(filter(_OWN.fullmatch, record["files"]))
            self._write({})
            for name in self.files:
                (self.folder / name).unlink(missing_ok=True)
            self.files = []
        self._write(settings)

    def _require_free(self, listed: Iterable[str]) -> None:
        """Raise UserError where a file is called like those of a probe, and is none of those ``listed``."""
        present = [self._maps, *(path for name in _FOLDERS for path in (self.folder / name).iterdir())]
        for path in present:
            name = path.relative_to(self.folder).as_posix()
            if os.path.lexists(path) and _OWN.fullmatch(name) and name not in listed:
                raise UserError(f"{path} exists and was not written by this probe; move it away")

    def _load(self) -> dict[str, Any]:
        """Return what the record has."""
        require_file(self._file)
        record: dict[str, Any] = json.loads(self._file.read_text(encoding="utf-8"))
        if "files" not in record:  # of an earlier version
            record["files"] = [self._maps.name]
            for row in record["rows"]:
                for kind, suffix in (("hypotheses", "txt"), ("checkpoints", "pt")):
                    record["files"].append(self._name(kind, row["layer"], row["state"], suffix))
        return record

    def _resume(self, record: Mapping[str, Any]) -> None:
        """Take the finished rows of a record, which must have been made with the same settings."""
        for name, value in self.settings.items():
            if record["settings"].get(name) != value:
                raise UserError(
                    f"--output {self.folder} holds a probe with another {name.replace('_', ' ')}: "
                    f"{record['settings'].get(name)} there and {value} here; give another folder, or --force to start "
                    "again"
                )
        self.rows = {(row["layer"], row["state"]): ProbeRow(**row) for row in record["rows"]}
        self.files = list(record["files"])

    def add(self, row: ProbeRow, hypotheses: list[str]) -> None:
        """Write a finished row and its translations."""
        path = self._listed(self._name("hypotheses", row.layer, row.state, "txt"))
        with atomic_write(path) as file:
            file.write("".join(f"{sentence}\n" for sentence in hypotheses).encode())
        self.rows[row.layer, row.state] = row
        self._write(self.settings)

    def _write(self, settings: Mapping[str, Any]) -> None:
        rows = list(map(asdict, self.rows.values()))
        text = json.dumps({"settings": settings, "rows": rows, "files": self.files}, indent=2)
        with atomic_write(self._file) as file:
            file.write(f"{text}\n".encode())

    def fits(self) -> Fits:
        """Read the linear layers that have been fitted so far."""
        if self._maps.name not in self.files or not self._maps.exists():
            return {}
        return {tuple(key.split(" ")): LinearFit(**values) for key, values in checkpoints.load(self._maps).items()}

    def write_fits(self, fits: Fits) -> None:
        """Write the linear layers."""
        path = self._listed(self._maps.name)
        checkpoints.save({" ".join(key): vars(fit) for key, fit in fits.items()}, path)

    def write_checkpoints(self, trained: Checkpoint, fits: Fits) -> None:
        """Write the checkpoints of rows that have none, for the checkpoint of a trained model."""
        for (layer, state), fit in fits.items():
            path = self._listed(self._name("checkpoints", layer, state, "pt"))
            if not path.exists():
                write_linearized(trained, path, layer, state, fit)

    def _listed(self, name: str) -> Path:
        """Return the path of a file that is to be written, once the record has its name."""
        if name not in self.files:
            self.files.append(name)
            self._write(self.settings)
        return self.folder / name

    @staticmethod
    def _name(kind: str, layer: str, state: str, suffix: str) -> str:
        return f"{kind}/{layer}{'.output' if state == 'output' else ''}.{suffix}"


def write_linearized(trained: Checkpoint, output: str | Path, layer: str, state: str, fit: LinearFit) -> None:
    """Write the checkpoint of a ``linearized_transformer`` in which one layer is replaced, as after training it."""
    values = trained.parameters
    side, number = layer.split(".")
    prefix = f"{side}.layers.{int(number) - 1}."
    like = next(value for name, value in values.items() if name.startswith(prefix))
    model = {name.replace(prefix, f"{prefix}intact.", 1) if name.startswith(prefix) else name: value
             for name, value in values.items()}  # fmt: skip
    model[f"{prefix}linear.weight"] = fit.weight.to(like.dtype)
    model[f"{prefix}linear.bias"] = fit.bias.to(like.dtype)
    cfg: Any = trained.state.get("cfg") or OmegaConf.to_container(trained.cfg, resolve=True, enum_to_str=True)
    options = {
        "_name": ARCHITECTURE,
        "probe_path": trained.path,
        "probe_layers": layer,
        "probe_state": state or "pair",
        "probe_model": json.dumps(plain_options(trained.state)),
    }
    checkpoints.save(
        {
            "args": None,
            "cfg": {**cfg, "model": options},
            "model": model,
            "optimizer_history": trained.state.get("optimizer_history"),
            "extra_state": {belonging.ENTRY: trained.provenance},
            "last_optimizer_state": None,
            "task_state": trained.state.get("task_state") or {},
        },
        output,
    )
