"""What a probe has found so far, in a folder from which it goes on after it was stopped.

``probe.json`` has the settings and the finished rows; ``maps.pt`` the linear maps; ``hypotheses/`` and
``checkpoints/`` a file for each row.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from fairseq_compat import UserError, checkpoints
from fairseq_compat.files import written_whole
from fairseq_compat.outputs import begin_folder
from fairseq_depthwise.analysis.probe.linear_fit import LinearFit

#: The name of the row in which nothing is replaced.
NONE = "none"

#: Files and folders of a probe.
_RECORD, _MAPS, _HYPOTHESES, _CHECKPOINTS = "probe.json", "maps.pt", "hypotheses", "checkpoints"

#: What the folder's marker says it is.
KIND = "probe"

#: Names of the files of rows.
_OF_A_ROW = re.compile(r"(none|(encoder|decoder)\.\d+)(\.output)?\.(txt|pt)")

#: (layer, state) -> map.
Fits = dict[tuple[str, str], LinearFit]


@dataclass(frozen=True)
class ProbeRow:
    """A model with one layer replaced.

    Attributes:
        layer: as ``encoder.1``, or ``none``.
        state: what of a pair (Out, Cell) was mapped, "pair" or "output"; empty where layers pass on one vector.
        score: from 0 to 100.
        metric: name of the score.
        signature: sacreBLEU's, of the score.
        error: mean squared error of the map.
        unexplained: the same as a share of the outputs' variance.
        positions: how many the map was fitted on.
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
    """A folder, what is to be found, and the rows that were.

    Attributes:
        folder: where everything is.
        settings: all that the result depends on, as JSON has it.
        rows: finished ones, in the order in which they were finished.
    """

    folder: str
    settings: Mapping[str, Any]
    rows: list[ProbeRow] = field(default_factory=list)

    @classmethod
    def open(cls, folder: str, settings: Mapping[str, Any], *, force: bool = False) -> ProbeRecord:
        """Begin in a folder, or go on in one that an earlier call left.

        Raises:
            UserError: the folder has something else in it, or a probe with other settings.
        """
        folder = begin_folder("--output", folder, KIND)
        path = os.path.join(folder, _RECORD)
        record = cls(folder, settings)
        if os.path.isfile(path):
            if force:
                _forget(folder)
                record._write()
            else:
                record.rows = _rows_of(path, settings, folder)
        else:
            record._write()
        for name in (_HYPOTHESES, _CHECKPOINTS):
            os.makedirs(os.path.join(folder, name), exist_ok=True)
        return record

    def row(self, layer: str, state: str) -> ProbeRow | None:
        """A finished row."""
        return next((row for row in self.rows if (row.layer, row.state) == (layer, state)), None)

    def add(self, row: ProbeRow) -> None:
        """A row is finished."""
        self.rows.append(row)
        self._write()

    def fits(self) -> Fits:
        """The maps that have been fitted so far."""
        path = os.path.join(self.folder, _MAPS)
        if not os.path.exists(path):
            return {}
        return {tuple(key.split(" ")): LinearFit(**values) for key, values in checkpoints.load(path).items()}

    def write_fits(self, fits: Fits) -> None:
        """Keep the maps."""
        checkpoints.save({" ".join(key): vars(fit) for key, fit in fits.items()}, os.path.join(self.folder, _MAPS))

    def checkpoint_of(self, layer: str, state: str) -> str:
        """Where the checkpoint of a row is."""
        name = f"{layer}.output.pt" if state == "output" else f"{layer}.pt"
        return os.path.join(self.folder, _CHECKPOINTS, name)

    def write_hypotheses(self, layer: str, state: str, sentences: list[str]) -> None:
        """One line for each sentence."""
        name = f"{layer}.output.txt" if state == "output" else f"{layer}.txt"
        with written_whole(os.path.join(self.folder, _HYPOTHESES, name)) as file:
            file.write("".join(f"{sentence}\n" for sentence in sentences).encode())

    def _write(self) -> None:
        text = json.dumps({"settings": self.settings, "rows": [asdict(row) for row in self.rows]}, indent=2)
        with written_whole(os.path.join(self.folder, _RECORD)) as file:
            file.write(f"{text}\n".encode())


def digest_of(path: str) -> str:
    """The SHA-256 of a file, so that another checkpoint of the same name is known as another."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def _forget(folder: str) -> None:
    """Remove all that was found, and nothing else: files of rows are known by their names."""
    for name in (_HYPOTHESES, _CHECKPOINTS):
        for path in glob.glob(os.path.join(glob.escape(folder), name, "*")):
            if _OF_A_ROW.fullmatch(os.path.basename(path)) and os.path.isfile(path):
                os.remove(path)
    if os.path.exists(os.path.join(folder, _MAPS)):
        os.remove(os.path.join(folder, _MAPS))


def _rows_of(path: str, settings: Mapping[str, Any], folder: str) -> list[ProbeRow]:
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
        there, rows = dict(found["settings"]), [ProbeRow(**row) for row in found["rows"]]
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} is no record of a probe, or is damaged; give another --output, or --force") from error
    for name, value in settings.items():
        if there.get(name) != value:
            raise UserError(
                f"--output {folder} holds a probe with another {name.replace('_', ' ')}: {there.get(name)} there and "
                f"{value} here; give another folder, or --force to start again"
            )
    return rows
