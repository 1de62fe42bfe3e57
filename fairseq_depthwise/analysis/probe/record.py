"""The results of a probe so far, in a folder from which it continues after it was stopped.

``probe.json`` has the settings and the finished rows, ``maps.pt`` the fitted linear layers; ``hypotheses/`` and
``checkpoints/`` have a file for each row.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fairseq import checkpoint_utils
from omegaconf import OmegaConf

from fairseq_compat import UserError, belonging, checkpoints
from fairseq_compat.files import atomic_write, require_file
from fairseq_depthwise.analysis.probe.linear_fit import LinearFit
from fairseq_depthwise.models.linearized.model import ARCHITECTURE, plain_options

#: Name of the row in which no layer is replaced.
NONE = "none"

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
        for name in ("hypotheses", "checkpoints"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        self._file, self._maps = self.folder / "probe.json", self.folder / "maps.pt"
        if self._file.exists() and force:
            # The record before what it lists; other files stay.
            patterns = ("hypotheses/none.txt", "hypotheses/*coder.[0-9]*.txt", "checkpoints/*coder.[0-9]*.pt")
            files = (path for pattern in patterns for path in self.folder.glob(pattern))
            for path in (self._file, self._maps, *files):
                path.unlink(missing_ok=True)
        elif self._file.exists():
            self._read()
        self._write()

    def _read(self) -> None:
        require_file(self._file)
        record = json.loads(self._file.read_text(encoding="utf-8"))
        for name, value in self.settings.items():
            if record["settings"].get(name) != value:
                raise UserError(
                    f"--output {self.folder} holds a probe with another {name.replace('_', ' ')}: "
                    f"{record['settings'].get(name)} there and {value} here; give another folder, or --force to start "
                    "again"
                )
        self.rows = {(row["layer"], row["state"]): ProbeRow(**row) for row in record["rows"]}

    def add(self, row: ProbeRow, hypotheses: list[str]) -> None:
        """Write a finished row and its translations."""
        with atomic_write(self._path("hypotheses", row.layer, row.state, "txt")) as file:
            file.write("".join(f"{sentence}\n" for sentence in hypotheses).encode())
        self.rows[row.layer, row.state] = row
        self._write()

    def _write(self) -> None:
        text = json.dumps({"settings": self.settings, "rows": list(map(asdict, self.rows.values()))}, indent=2)
        with atomic_write(self._file) as file:
            file.write(f"{text}\n".encode())

    def fits(self) -> Fits:
        """Read the linear layers that have been fitted so far."""
        if not self._maps.exists():
            return {}
        return {tuple(key.split(" ")): LinearFit(**values) for key, values in checkpoints.load(self._maps).items()}

    def write_fits(self, fits: Fits) -> None:
        """Write the linear layers."""
        checkpoints.save({" ".join(key): vars(fit) for key, fit in fits.items()}, self._maps)

    def write_checkpoints(self, trained: str, fits: Fits) -> None:
        """Write the checkpoints of rows that have none, for the checkpoint of a trained model."""
        for (layer, state), fit in fits.items():
            path = self._path("checkpoints", layer, state, "pt")
            if not path.exists():
                write_linearized(trained, path, layer, state, fit)

    def _path(self, kind: str, layer: str, state: str, suffix: str) -> Path:
        return self.folder / kind / f"{layer}{'.output' if state == 'output' else ''}.{suffix}"


def write_linearized(path: str, output: str | Path, layer: str, state: str, fit: LinearFit) -> None:
    """Write the checkpoint of a ``linearized_transformer`` in which one layer is replaced, as after training it."""
    trained = checkpoints.load_checkpoint(path, mapped=True)
    values = trained["model"]
    side, number = layer.split(".")
    prefix = f"{side}.layers.{int(number) - 1}."
    like = next(value for name, value in values.items() if name.startswith(prefix))
    model = {name.replace(prefix, f"{prefix}intact.", 1) if name.startswith(prefix) else name: value
             for name, value in values.items()}  # fmt: skip
    model[f"{prefix}linear.weight"] = fit.weight.to(like.dtype)
    model[f"{prefix}linear.bias"] = fit.bias.to(like.dtype)
    cfg: dict[str, Any] = trained.get("cfg") or OmegaConf.to_container(
        checkpoint_utils.load_checkpoint_to_cpu(path)["cfg"], resolve=True, enum_to_str=True
    )
    options = {
        "_name": ARCHITECTURE,
        "probe_path": path,
        "probe_layers": layer,
        "probe_state": state or "pair",
        "probe_model": json.dumps(plain_options(trained)),
    }
    checkpoints.save(
        {
            "args": None,
            "cfg": {**cfg, "model": options},
            "model": model,
            "optimizer_history": trained.get("optimizer_history"),
            "extra_state": {belonging.ENTRY: belonging.recorded_in(trained)},
            "last_optimizer_state": None,
            "task_state": trained.get("task_state") or {},
        },
        output,
    )
