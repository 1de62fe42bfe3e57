"""The results of a probe so far, in a folder from which it resumes.

``probe.json`` has the settings, the finished rows, and the names of the files that were written: ``maps.pt`` with the
fitted linear layers, and in ``hypotheses/`` and ``checkpoints/`` one for each row. A name is added before its
file is written; files that are not listed are neither read nor replaced.
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

from fairseq_compat import UserError, checkpoints, provenance
from fairseq_compat.files import atomic_write, require_file
from fairseq_depthwise.analysis.probe.linear_fit import LinearFit
from fairseq_depthwise.checkpoints.checkpoint import Checkpoint
from fairseq_depthwise.models.linearized.model import ARCHITECTURE, plain_options

#: Name of the row in which no layer is replaced.
BASELINE = "none"

#: Names of files that a probe writes: no others are removed, whatever ``probe.json`` says.
_FILE_NAMES = re.compile(
    r"maps\.pt|hypotheses/none\.txt|(hypotheses|checkpoints)/(en|de)coder\.\d+(\.output)?\.(txt|pt)"
)

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
    """A folder with the results of a probe so far.

    Attributes:
        settings: everything that results depend on; a folder with results of other settings is refused, unless
            ``force`` removes them.
        rows: finished rows by layer and state.
        files: names of the files that were written, in the folder.
    """

    def __init__(self, folder: str, settings: Mapping[str, Any], *, force: bool = False) -> None:
        self.folder = Path(folder)
        self.settings = settings
        self.rows: dict[tuple[str, str], ProbeRow] = {}
        self.files: list[str] = []
        # The record, and the file with all fitted linear layers.
        self._record_path = self.folder / "probe.json"
        self._fits_path = self.folder / "maps.pt"
        self._make_folders()

        record = self._read_record()
        if record and not force:
            self._resume(record)
        # Files of the user's own are neither replaced nor removed.
        listed_files = record.get("files", [])
        self._refuse_other_files(listed_files)
        if record and force:
            self._remove_files(listed_files)
        self._write_record(settings)

    def _make_folders(self) -> None:
        for folder in (self.folder, *(self.folder / name for name in _FOLDERS)):
            if folder.is_symlink():
                raise UserError(f"--output {self.folder}: {folder} is a link; give a folder of its own")
            folder.mkdir(parents=True, exist_ok=True)

    def _read_record(self) -> dict[str, Any]:
        """Return the content of ``probe.json``; empty if there is no such file."""
        if not self._record_path.exists():
            return {}
        require_file(self._record_path)  # raises if it is a pipe, for example
        record: dict[str, Any] = json.loads(self._record_path.read_text(encoding="utf-8"))
        return record

    def _resume(self, record: Mapping[str, Any]) -> None:
        """Use the finished rows of a record; raise UserError if it was made with other settings."""
        settings = record["settings"]
        for name, value in self.settings.items():
            if settings.get(name) != value:
                raise UserError(
                    f"--output {self.folder} holds a probe with another {name.replace('_', ' ')}: {settings.get(name)} "
                    f"there and {value} here; give another folder, or --force to start again"
                )
        self.rows = {(row["layer"], row["state"]): ProbeRow(**row) for row in record["rows"]}
        self.files = list(record.get("files", []))

    def _refuse_other_files(self, listed_files: Iterable[str]) -> None:
        """Raise UserError if a file has the name of a probe's file and is not in the record."""
        paths = [self._fits_path]
        for name in _FOLDERS:
            paths += (self.folder / name).iterdir()
        for path in paths:
            name = path.relative_to(self.folder).as_posix()
            if os.path.lexists(path) and _FILE_NAMES.fullmatch(name) and name not in listed_files:
                raise UserError(f"{path} exists and was not written by this probe; move it away")

    def _remove_files(self, listed_files: Iterable[str]) -> None:
        """Remove the files of an earlier probe."""
        # If the process is killed here, the record has no settings, so that old files are not taken for new ones.
        self.files = list(filter(_FILE_NAMES.fullmatch, listed_files))
        self._write_record({})
        for name in self.files:
            (self.folder / name).unlink(missing_ok=True)
        self.files = []

    def add_row(self, row: ProbeRow, hypotheses: list[str]) -> None:
        """Write a finished row and its translations."""
        path = self._register_file(self._file_name("hypotheses", row.layer, row.state, "txt"))
        text = "".join(f"{sentence}\n" for sentence in hypotheses)
        with atomic_write(path) as file:
            file.write(text.encode())
        self.rows[row.layer, row.state] = row
        self._write_record(self.settings)

    def _write_record(self, settings: Mapping[str, Any]) -> None:
        record = {
            "settings": settings,
            "rows": [asdict(row) for row in self.rows.values()],
            "files": self.files,
        }
        text = json.dumps(record, indent=2)
        with atomic_write(self._record_path) as file:
            file.write(f"{text}\n".encode())

    def read_fits(self) -> Fits:
        """Read the linear layers that have been fitted so far."""
        if self._fits_path.name not in self.files or not self._fits_path.exists():
            return {}
        fits = {}
        for key, values in checkpoints.load(self._fits_path).items():
            layer, state = key.split(" ")
            fits[layer, state] = LinearFit(**values)
        return fits

    def write_fits(self, fits: Fits) -> None:
        """Write the linear layers."""
        path = self._register_file(self._fits_path.name)
        checkpoints.save({" ".join(key): vars(fit) for key, fit in fits.items()}, path)

    def write_checkpoints(self, trained: Checkpoint, fits: Fits) -> None:
        """Write a checkpoint for each row that has none; ``trained`` is the checkpoint of the probed model."""
        for (layer, state), fit in fits.items():
            path = self._register_file(self._file_name("checkpoints", layer, state, "pt"))
            if not path.exists():
                write_linearized(trained, path, layer, state, fit)

    def _register_file(self, name: str) -> Path:
        """Add the name of a file to the record, and return the path to write it to."""
        # Before the file is written: if the process is killed meanwhile, the next one may replace the file.
        if name not in self.files:
            self.files.append(name)
            self._write_record(self.settings)
        return self.folder / name

    @staticmethod
    def _file_name(kind: str, layer: str, state: str, suffix: str) -> str:
        stem = f"{layer}.output" if state == "output" else layer
        return f"{kind}/{stem}.{suffix}"


def write_linearized(trained: Checkpoint, output: str | Path, layer: str, state: str, fit: LinearFit) -> None:
    """Write the checkpoint of a ``linearized_transformer`` in which one layer is replaced, as after training it."""
    parameters = trained.parameters
    side, number = layer.split(".")
    prefix = f"{side}.layers.{int(number) - 1}."
    layer_parameter = next(value for name, value in parameters.items() if name.startswith(prefix))
    dtype = layer_parameter.dtype
    # The replaced layer stays in the checkpoint, as the linear layer's ``intact``.
    model = {}
    for name, value in parameters.items():
        if name.startswith(prefix):
            name = f"{prefix}intact.{name.removeprefix(prefix)}"
        model[name] = value
    model[f"{prefix}linear.weight"] = fit.weight.to(dtype)
    model[f"{prefix}linear.bias"] = fit.bias.to(dtype)
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
            "extra_state": {provenance.ENTRY: trained.provenance},
            "last_optimizer_state": None,
            "task_state": trained.state.get("task_state") or {},
        },
        output,
    )
