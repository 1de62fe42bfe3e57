"""The results of a probe so far, in a folder from which it continues after it was stopped.

``probe.json`` has the settings and the finished rows, ``maps.pt`` the fitted linear layers; ``hypotheses/`` and
``checkpoints/`` have a file for each row.
"""

from __future__ import annotations

import glob
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from fairseq import checkpoint_utils
from omegaconf import OmegaConf

from fairseq_compat import UserError, belonging, checkpoints
from fairseq_compat.files import atomic_write
from fairseq_compat.outputs import begin_folder
from fairseq_depthwise.analysis.probe.linear_fit import LinearFit
from fairseq_depthwise.models.linearized.model import ARCHITECTURE, SIDES, plain_options

#: Name of the row in which no layer is replaced.
NONE = "none"

#: Kind of the folder, for its marker.
PROBE_KIND = "probe"

_RECORD, _FITS, _HYPOTHESES, _CHECKPOINTS = "probe.json", "maps.pt", "hypotheses", "checkpoints"

#: Files that ``--force`` removes, the record before what it lists; others in the folder stay.
_RESULTS = (
    *(_RECORD, _FITS, f"{_HYPOTHESES}/none.txt"),
    *(f"{_HYPOTHESES}/{side}.[0-9]*.txt" for side in SIDES),
    *(f"{_CHECKPOINTS}/{side}.[0-9]*.pt" for side in SIDES),
)

#: (layer, state) -> linear layer.
Fits = dict[tuple[str, str], LinearFit]


@dataclass(frozen=True)
class ProbeRow:
    """The score of a model with one layer replaced.

    Attributes:
        layer: as ``encoder.1``, or ``none``.
        state: which part of a pair (Out, Cell) was replaced, "pair" or "output"; empty for layers with one output.
        score: from 0 to 100.
        metric: name of the score.
        signature: sacreBLEU's, of the score.
        error: mean squared error of the linear layer.
        unexplained: the same as a share of the outputs' variance.
        positions: number of positions that it was fitted on.
    """

    layer: str
    state: str
    score: float
    metric: str
    signature: str
    error: float | None = None
    unexplained: float | None = None
    positions: int | None = None


@dataclass
class ProbeRecord:
    """A folder with the results of a probe.

    Attributes:
        folder: that everything is written to.
        settings: everything that the results depend on, in types of JSON.
        rows: finished ones, in the order in which they were finished.
    """

    folder: str
    settings: Mapping[str, Any]
    rows: list[ProbeRow] = field(default_factory=list)

    @classmethod
    def open(cls, folder: str, settings: Mapping[str, Any], *, force: bool = False) -> ProbeRecord:
        """Begin in a folder, or continue in that of an earlier call; with ``force`` remove its results.

        Raises:
            UserError: the folder has other content, or a probe with other settings.
        """
        folder = begin_folder("--output", folder, PROBE_KIND)
        record = cls(folder, settings)
        path = os.path.join(folder, _RECORD)
        if os.path.isfile(path) and not force:
            record.rows = _read_rows(path, settings, folder)
        else:
            for pattern in _RESULTS:
                for name in glob.glob(pattern, root_dir=folder):
                    os.remove(os.path.join(folder, name))
            record._write()
        for name in (_HYPOTHESES, _CHECKPOINTS):
            os.makedirs(os.path.join(folder, name), exist_ok=True)
        return record

    def row(self, layer: str, state: str) -> ProbeRow | None:
        """Return a row if it is finished."""
        return next((row for row in self.rows if (row.layer, row.state) == (layer, state)), None)

    def add(self, row: ProbeRow, hypotheses: list[str]) -> None:
        """Write a finished row and its translations."""
        with atomic_write(self._path(_HYPOTHESES, row.layer, row.state, "txt")) as file:
            file.write("".join(f"{sentence}\n" for sentence in hypotheses).encode())
        self.rows.append(row)
        self._write()

    def fits(self) -> Fits:
        """Read the linear layers that have been fitted so far."""
        path = os.path.join(self.folder, _FITS)
        if not os.path.exists(path):
            return {}
        try:
            return {tuple(key.split(" ")): LinearFit(**values) for key, values in checkpoints.load(path).items()}
        except (AttributeError, TypeError) as error:
            raise UserError(f"{path} holds no linear layers of a probe; give another --output, or --force") from error

    def write_fits(self, fits: Fits) -> None:
        """Write the linear layers."""
        checkpoints.save({" ".join(key): vars(fit) for key, fit in fits.items()}, os.path.join(self.folder, _FITS))

    def write_checkpoints(self, trained: str, fits: Fits) -> str:
        """Write the checkpoints of rows that have none, for the checkpoint of a trained model; return their folder."""
        for (layer, state), fit in fits.items():
            path = self._path(_CHECKPOINTS, layer, state, "pt")
            if not os.path.exists(path):
                write_linearized(trained, path, layer, state, fit)
        return os.path.join(self.folder, _CHECKPOINTS)

    def _path(self, kind: str, layer: str, state: str, suffix: str) -> str:
        name = f"{layer}.output" if state == "output" else layer
        return os.path.join(self.folder, kind, f"{name}.{suffix}")

    def _write(self) -> None:
        text = json.dumps({"settings": self.settings, "rows": [asdict(row) for row in self.rows]}, indent=2)
        with atomic_write(os.path.join(self.folder, _RECORD)) as file:
            file.write(f"{text}\n".encode())


def write_linearized(path: str, output: str, layer: str, state: str, fit: LinearFit) -> None:
    """Write the checkpoint of a ``linearized_transformer`` in which one layer is replaced, as after training it.

    Args:
        path: checkpoint of the trained model.
        output: the file to write.
        layer: as ``encoder.1``.
        state: which part of a pair is replaced, of ``linearized.layer.STATES``; empty for layers with one output.
        fit: the linear layer.

    Raises:
        UserError: a file cannot be read or written.
    """
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


def _read_rows(path: str, settings: Mapping[str, Any], folder: str) -> list[ProbeRow]:
    try:
        with open(path, encoding="utf-8") as file:
            record = json.load(file)
        recorded, rows = dict(record["settings"]), [ProbeRow(**row) for row in record["rows"]]
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} is no record of a probe, or is damaged; give another --output, or --force") from error
    for name, value in settings.items():
        if recorded.get(name) != value:
            raise UserError(
                f"--output {folder} holds a probe with another {name.replace('_', ' ')}: {recorded.get(name)} there "
                f"and {value} here; give another folder, or --force to start again"
            )
    return rows
