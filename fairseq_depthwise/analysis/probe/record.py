"""The results of a probe so far, in a folder from which it continues after it was stopped.

``probe.json`` has the settings and the finished rows, ``maps.pt`` the fitted linear layers; ``hypotheses/`` and
``checkpoints/`` have a file for each row.
"""

from __future__ import annotations

import glob
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from fairseq import checkpoint_utils
from omegaconf import OmegaConf

from fairseq_compat import UserError, belonging, checkpoints
from fairseq_compat.files import atomic_write
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
        self.folder = folder
        self.settings = settings
        #: Finished rows.
        self.rows: dict[tuple[str, str], ProbeRow] = {}
        if os.path.exists(self._path("probe.json")):
            if force:
                self._remove()
            else:
                self._read()

    def _path(self, *names: str) -> str:
        return os.path.join(self.folder, *names)

    def _read(self) -> None:
        with open(self._path("probe.json"), encoding="utf-8") as file:
            record = json.load(file)
        for name, value in self.settings.items():
            if record["settings"].get(name) != value:
                raise UserError(
                    f"--output {self.folder} holds a probe with another {name.replace('_', ' ')}: "
                    f"{record['settings'].get(name)} there and {value} here; give another folder, or --force to start "
                    "again"
                )
        self.rows = {(row["layer"], row["state"]): ProbeRow(**row) for row in record["rows"]}

    def _remove(self) -> None:
        """Remove the results, the record before what it lists; other files stay."""
        results = ("probe.json", "maps.pt", "hypotheses/none.txt", "hypotheses/*coder.[0-9]*.txt")
        for pattern in (*results, "checkpoints/*coder.[0-9]*.pt"):
            for name in sorted(glob.glob(pattern, root_dir=self.folder)):
                os.remove(self._path(name))

    def write(self) -> None:
        """Write settings and finished rows."""
        text = json.dumps({"settings": self.settings, "rows": list(map(asdict, self.rows.values()))}, indent=2)
        for name in ("hypotheses", "checkpoints"):
            os.makedirs(self._path(name), exist_ok=True)
        with atomic_write(self._path("probe.json")) as file:
            file.write(f"{text}\n".encode())

    def add(self, row: ProbeRow, hypotheses: list[str]) -> None:
        """Write a finished row and its translations."""
        with atomic_write(self._path("hypotheses", _name(row.layer, row.state, "txt"))) as file:
            file.write("".join(f"{sentence}\n" for sentence in hypotheses).encode())
        self.rows[row.layer, row.state] = row
        self.write()

    def fits(self) -> Fits:
        """Read the linear layers that have been fitted so far."""
        path = self._path("maps.pt")
        if not os.path.exists(path):
            return {}
        return {tuple(key.split(" ")): LinearFit(**values) for key, values in checkpoints.load(path).items()}

    def write_fits(self, fits: Fits) -> None:
        """Write the linear layers."""
        checkpoints.save({" ".join(key): vars(fit) for key, fit in fits.items()}, self._path("maps.pt"))

    def write_checkpoints(self, trained: str, fits: Fits) -> None:
        """Write the checkpoints of rows that have none, for the checkpoint of a trained model."""
        for (layer, state), fit in fits.items():
            path = self._path("checkpoints", _name(layer, state, "pt"))
            if not os.path.exists(path):
                write_linearized(trained, path, layer, state, fit)


def _name(layer: str, state: str, suffix: str) -> str:
    return f"{layer}.output.{suffix}" if state == "output" else f"{layer}.{suffix}"


def write_linearized(path: str, output: str, layer: str, state: str, fit: LinearFit) -> None:
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
