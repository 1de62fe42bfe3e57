"""Damaged and hostile files: refused in a sentence, or without effect; nothing in them is run."""

from __future__ import annotations

import contextlib
import copy
import io
import json
import logging
import os
import pickle
import random
import shutil
import signal
import subprocess
import sys
import tarfile
import traceback
import zipfile
from argparse import Namespace
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import corpus_mirror
import torch
from attacks import PATIENCE, Finding, Outcome, Place, digests
from hostile_values import HOSTILE, hostile
from probe_checkpoints import KINDS, checkpoint_of, data_in
from recipe_runs import Work

from fairseq_compat import UserError, checkpoints
from fairseq_depthwise import cli

#: What a file of ours may never lead to; PyTorch starts none of these while it loads or computes.
_STARTS = ("os.system", "os.exec", "os.posix_spawn", "os.fork", "subprocess.Popen", "pty.spawn", "socket.connect")
_started: list[str] = []


def _watch() -> None:
    if not _started:
        _started.append("watched")
        sys.addaudithook(lambda event, _: _started.append(event) if event in _STARTS else None)


def here(kind: str, words: list[Any], detail: str, witness: Path | None = None) -> Finding:
    """Run a command in this process, and judge how it ended."""

    def too_long(*_: object) -> None:
        raise TimeoutError

    _watch()
    before = len(_started)
    error, status = io.StringIO(), 0
    signal.signal(signal.SIGALRM, too_long)
    signal.alarm(30)
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    stdin, sys.stdin = sys.stdin, io.TextIOWrapper(io.BytesIO(b"w1 w2\n"))
    output = io.TextIOWrapper(io.BytesIO())
    outcome = None
    try:
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(error):
            status = cli.main([str(word) for word in words])
    except TimeoutError:
        outcome = Outcome.HUNG
    except SystemExit as end:
        status = int(end.code or 0)
    except BaseException:
        outcome = Outcome.SURPRISED
        detail = f"{detail}: {traceback.format_exc()[-700:]}"
    finally:
        signal.alarm(0)
        sys.stdin = stdin
        logging.disable(disabled)
    if len(_started) > before or (witness is not None and any(witness.iterdir())):
        return Finding(kind, Outcome.EXECUTED, f"{detail}: {_started[before:]}")
    return Finding(kind, outcome or (Outcome.REFUSED if status else Outcome.HARMLESS), detail)


def _full_state(path: str) -> dict[str, Any]:
    """Return a checkpoint with all entries that some command reads."""
    state = checkpoints.load_checkpoint(path)
    count = 7
    state["last_optimizer_state"] = {
        "state": {}, "param_groups": [{"lr": 0.1, "params": list(range(count))}], "loss_scale": 4.0,
    }  # fmt: skip
    state["optimizer_history"][-1] |= {
        "lr_scheduler_state": {"best": 1.5, "start": 0, "restarts": [3], "updates": count}, "optimizer_name": "Adam",
    }  # fmt: skip
    state["extra_state"] = {
        "train_iterator": {"epoch": 2, "iterations_in_epoch": 3}, "ema": dict(state["model"]), "val_loss": 3.0,
        "best": 2.0, "versions": {"torch": "2"}, "averaged_from": ["a.pt"], "grown_from": "4 encoder layers, top-most",
    }  # fmt: skip
    state["task_state"] = {"last_growth": {"new": list(state["model"])[:1], "frozen": "copied"}}
    state["cfg"] |= {
        "common": {"seed": 1}, "lr_scheduler": {"_name": "inverse_sqrt_restart", "warmup_updates": 4, "lr": [0.002]},
        "checkpoint": {"best_checkpoint_metric": "loss", "maximize_best_checkpoint_metric": False},
        "task": {**state["cfg"]["task"], "growth_stages": "1:1,3:", "growth_side": "encoder", "growth_strategy": "top"},
    }  # fmt: skip
    return state


def checkpoints_(place: Place) -> Iterator[Finding]:
    """Change bytes of every part of a file, cut it off, and lengthen it."""
    logging.disable(logging.WARNING)
    contents = {}
    for kind in KINDS:
        path = checkpoint_of(place.folder, kind, f"{kind}.pt")
        torch.save(_full_state(path), path)
        contents[kind] = Path(path).read_bytes()
    path = place.folder / "damaged.pt"
    while True:
        for kind, content in contents.items():
            for name, damage in _BYTES.items():
                path.write_bytes(damage(content, place.chance))
                os.utime(path, ns=(place.chance.randrange(2**40),) * 2)
                yield _loaded(path, kind, name, content)


def _loaded(path: Path, kind: str, name: str, content: bytes) -> Finding:
    expected = checkpoints.load(io.BytesIO(content))
    try:
        found = checkpoints.load_checkpoint(path)
    except UserError:
        return Finding(name, Outcome.REFUSED)
    except Exception:
        return Finding(name, Outcome.SURPRISED, f"{kind}: {traceback.format_exc()[-600:]}")
    same = found["model"].keys() == expected["model"].keys() and all(
        torch.equal(found["model"][key], expected["model"][key]) for key in found["model"]
    )
    return Finding(name, Outcome.HARMLESS if same else Outcome.DIFFERENT, kind)


def _flip(content: bytes, low: int, high: int, chance: random.Random) -> bytes:
    changed = bytearray(content)
    place = chance.randrange(low, max(low + 1, min(high, len(content))))
    changed[place] ^= 1 << chance.randrange(8)
    return bytes(changed)


def _within(pattern: bytes, length: int) -> Callable[[bytes, random.Random], bytes]:
    """Flip a bit in the bytes that follow one of the places where a pattern is."""

    def damage(content: bytes, chance: random.Random) -> bytes:
        places = []
        start = content.find(pattern)
        while start >= 0:
            places.append(start)
            start = content.find(pattern, start + 1)
        start = chance.choice(places)
        return _flip(content, start, start + length, chance)

    return damage


def _garbage(content: bytes, chance: random.Random) -> bytes:
    start, length = chance.randrange(len(content)), chance.randrange(1, 5000)
    return content[:start] + chance.randbytes(length) + content[start + length :]


def _moved(content: bytes, chance: random.Random) -> bytes:
    first, length = chance.randrange(len(content)), chance.randrange(1, 2000)
    second = chance.randrange(len(content))
    return content[:first] + content[second : second + length] + content[first + length :]


#: Kind of damage -> what makes it; every part of the format has its own.
_BYTES: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "a bit anywhere": lambda content, chance: _flip(content, 0, len(content), chance),
    "a bit of a local header": _within(b"PK\x03\x04", 30),
    "a bit of a name or its padding": _within(b"PK\x03\x04", 120),
    "a bit of the pickle": _within(b"data.pkl", 3000),
    "a bit of a tensor": lambda content, chance: _flip(content, len(content) // 4, len(content) * 3 // 4, chance),
    "a bit of the version": _within(b"version", 80),
    "a bit of the byte order": _within(b"byteorder", 80),
    "a bit of the directory": _within(b"PK\x01\x02", 46),
    "a bit of a name of the directory": _within(b"PK\x01\x02", 90),
    "a bit of the directory's end": _within(b"PK\x05\x06", 22),
    "a bit of the large directory's end": _within(b"PK\x06\x06", 56),
    "a bit of its locator": _within(b"PK\x06\x07", 20),
    "cut off": lambda content, chance: content[: chance.randrange(len(content))],
    "cut off at the front": lambda content, chance: content[chance.randrange(1, len(content)) :],
    "bytes lost": lambda content, chance: _lost(content, chance),
    "bytes twice": lambda content, chance: _twice(content, chance),
    "bytes from elsewhere": _moved,
    "noise within": _garbage,
    "noise behind": lambda content, chance: content + chance.randbytes(chance.randrange(1, 3000)),
    "noise before": lambda content, chance: chance.randbytes(chance.randrange(1, 3000)) + content,
    "zeros within": lambda content, chance: _zeros(content, chance),
    "noise alone": lambda content, chance: chance.randbytes(chance.randrange(3000)),
}


def _lost(content: bytes, chance: random.Random) -> bytes:
    start = chance.randrange(len(content))
    return content[:start] + content[start + chance.randrange(1, 500) :]


def _twice(content: bytes, chance: random.Random) -> bytes:
    start = chance.randrange(len(content))
    return content[:start] + content[start : start + chance.randrange(1, 500)] + content[start:]


def _zeros(content: bytes, chance: random.Random) -> bytes:
    start, length = chance.randrange(len(content)), chance.randrange(1, 4096)
    return content[:start] + bytes(len(content[start : start + length])) + content[start + length :]


#: In the place of an entry of a checkpoint; "DELETED" removes it.
_VALUES = (
    None, "x", "", -1, 0, 10**9, 2.5, [], {}, [1], {"x": 1}, True, torch.ones(1), float("nan"), Namespace(a=1),
    "DELETED",
)  # fmt: skip


def _places(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if above:
        yield above
    if isinstance(value, dict):
        keys = list(value)
        if all(isinstance(one, torch.Tensor) for one in value.values()):
            keys = keys[:2]
        for key in keys:
            yield from _places(value[key], (*above, key))
    elif isinstance(value, list):
        for position in range(len(value)):
            yield from _places(value[position], (*above, position))


def _changed(state: dict[str, Any], at: tuple[Any, ...], value: Any) -> dict[str, Any]:
    result = copy.copy(state)
    inner: Any = result
    for key in at[:-1]:
        inner[key] = copy.copy(inner[key])
        inner = inner[key]
    if isinstance(value, str) and value == "DELETED":
        del inner[at[-1]]
    else:
        inner[at[-1]] = value
    return result


def entries(place: Place) -> Iterator[Finding]:
    """Put other values into the places of a checkpoint, and give it to the commands that read one."""
    data = data_in(place.folder / "data")
    output = place.folder / "output"
    states = {kind: _full_state(checkpoint_of(place.folder, kind)) for kind in KINDS}
    path = place.folder / "damaged.pt"
    given = ["--data", data, "--max-sentences", "2"]
    for number in range(10**9):
        kind = place.chance.choice(list(states))
        depth = states[kind]["cfg"]["model"]["encoder_layers"]
        at, value = place.chance.choice(list(_places(states[kind]))), place.chance.choice(_VALUES)
        torch.save(_changed(states[kind], at, value), path)
        words = {
            "grow": ["grow", path, output / "grown.pt", "--layers", 2 * depth, "--force"],
            "inspect": ["inspect", path],
            "average": ["average", path, path, "--output", output / "mean.pt", "--force"],
            "similarity": ["similarity", path, *given],
            "gates": ["gates", path, *given],
            "units": ["units", path, *given],
            "translate": ["translate", path, "--data", data, "--cpu", "--tokenized", "--max-len-b", "8"],
            "export": ["export", path, output / "exported", "--data", data, "--force"],
            "generate": ["inspect", path, "--json"],
        }
        output.mkdir(exist_ok=True)
        name = list(words)[number % len(words)]
        yield here(name, words[name], f"{kind} {at} = {value!r}")


class _Runs:
    """Runs something where it is unpickled without care."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.reduced = function, arguments

    def __reduce__(self) -> tuple[Any, ...]:
        return self.reduced


def _pickles(witness: Path) -> dict[str, Any]:
    """Return objects that make a file when they are unpickled, by name."""
    file = str(witness / "pickled")
    code = f"open({file!r}, 'w')"
    import builtins
    import codecs
    import importlib
    import runpy

    return {
        "os.system": _Runs(os.system, f"touch {file}"),
        "eval": _Runs(builtins.eval, code),
        "exec": _Runs(builtins.exec, code),
        "open": _Runs(open, file, "w"),
        "subprocess": _Runs(subprocess.check_call, ["touch", file]),
        "Popen": _Runs(subprocess.Popen, ["touch", file]),
        "Path.touch": _Runs(Path.touch, witness / "pickled"),
        "import": _Runs(importlib.import_module, "antigravity"),
        "runpy": _Runs(runpy.run_path, file),
        "codecs": _Runs(codecs.open, file, "w"),
        "getattr": _Runs(getattr, Path, "touch"),
        "torch.load": _Runs(torch.load, file),
        "pickle.loads": _Runs(pickle.loads, pickle.dumps(_Runs(os.system, f"touch {file}"))),
        "unlink": _Runs(os.unlink, __file__),
        "map": _Runs(map, os.system, [f"touch {file}"]),
        "torch.hub": _Runs(torch.hub.load, str(witness), "x"),
        "torch.save": _Runs(torch.save, {}, file),
        "rmtree": _Runs(shutil.rmtree, str(witness)),
    }


def hostile_(place: Place) -> Iterator[Finding]:
    """Put what runs code where it is evaluated or unpickled into random places of checkpoints."""
    data = data_in(place.folder / "data")
    states = {kind: _full_state(checkpoint_of(place.folder, kind)) for kind in KINDS}
    witness = place.new_folder("witness")
    path = place.folder / "hostile.pt"
    values = {name: hostile(name, witness / "evaluated") for name in HOSTILE} | _pickles(witness)
    while True:
        for name, value in values.items():
            kind = place.chance.choice(list(states))
            at = place.chance.choice([one for one in _places(states[kind]) if one[0] in ("cfg", "extra_state", "args")])
            state = _changed(states[kind], at, value)
            new = place.chance.random() < 0.8
            torch.save(state, path, _use_new_zipfile_serialization=new, pickle_protocol=place.chance.choice([2, 4]))
            words = place.chance.choice([
                ["inspect", path], ["translate", path, "--data", data, "--cpu", "--tokenized", "--max-len-b", "8"],
                ["average", path, "--output", place.folder / "mean.pt"],
                ["similarity", path, "--data", data, "--max-sentences", "2"],
                ["probe", path, "--data", data, "--output", place.folder / "probe", "--layers", "encoder.1", "--cpu"],
            ])  # fmt: skip
            yield here(name, words, f"{kind} {at}, {words[0]}", witness)


def exports(place: Place) -> Iterator[Finding]:
    """Damage files of exported folders, and change values of their configuration."""
    data = data_in(place.folder / "data")
    whole = place.folder / "whole"
    model = checkpoint_of(place.folder, "sdt_transformer")
    assert cli.main(["export", model, str(whole), "--data", data]) == 0
    names = sorted(path.name for path in whole.iterdir() if path.is_file())
    config = json.loads((whole / "config.json").read_text(encoding="utf-8"))
    while True:
        for name in names:
            folder = place.new_folder("damaged")
            shutil.rmtree(folder)
            shutil.copytree(whole, folder)
            damage = place.chance.choice(["cut off", "a bit anywhere", "noise within", "bytes lost", "noise alone"])
            if name == "config.json" and place.chance.random() < 0.6:
                at, value = place.chance.choice(list(_places(config))), place.chance.choice(["x", -1, None, [], 10**9])
                (folder / name).write_text(json.dumps(_changed(config, at, value)), encoding="utf-8")
                damage = f"{at} = {value!r}"
            else:
                (folder / name).write_bytes(_BYTES[damage]((whole / name).read_bytes(), place.chance))
            yield here(
                name.partition(".")[2],
                ["translate", folder, "--tokenized", "--beam", "2", "--max-len-b", "8"],
                f"{name}: {damage}",
            )
            shutil.rmtree(folder)


def texts(place: Place) -> Iterator[Finding]:
    """Damage dictionaries, subwords, logs of trainings, records and texts that are scored."""
    data = Path(data_in(place.folder / "data"))
    model = checkpoint_of(place.folder, "mute_transformer")
    log = place.folder / "train.log"
    place.folder.joinpath("run").mkdir()
    training = place.run(
        "fairseq-depthwise", "train", data, "--arch", "transformer", *[
            f"--{side}-{option}" for side in ("encoder", "decoder") for option in ("embed-dim=16", "layers=1")
        ],
        "--cpu", "--log-format", "json", "--log-interval", "1", "--max-update", "4", "--max-tokens", "200",
        "--optimizer", "adam", "--lr", "0.001", "--save-dir", place.folder / "run",
    )  # fmt: skip
    log.write_text(training.stdout + training.stderr, encoding="utf-8")
    assert cli.main(["report", str(log), "--output", str(place.folder / "page.html")]) == 0
    reference = place.folder / "reference"
    reference.write_text("w1 w2 w3\nw4 w5 w6\n", encoding="utf-8")
    cases: dict[str, tuple[Path, list[Any]]] = {
        "a dictionary": (data / "dict.src.txt", ["translate", model, "--data", data, "--cpu", "--tokenized"]),
        "a log": (log, ["report", log, "--output", place.folder / "page.html"]),
        "a text": (reference, ["score", place.folder / "hypotheses", reference]),
        "indexed text": (data / "valid.src-tgt.src.idx", ["similarity", model, "--data", data, "--subset", "valid"]),
    }
    (place.folder / "hypotheses").write_text("w1 w2 w3\nw4 w5\n", encoding="utf-8")
    whole = {name: path.read_bytes() for name, (path, _) in cases.items()}
    while True:
        for name, (path, words) in cases.items():
            damage = place.chance.choice(
                ["cut off", "a bit anywhere", "noise within", "bytes lost", "bytes twice", "bytes from elsewhere",
                 "noise alone", "zeros within"]
            )  # fmt: skip
            path.write_bytes(_BYTES[damage](whole[name], place.chance))
            yield here(name, words, damage)
            path.write_bytes(whole[name])


def archives(place: Place) -> Iterator[Finding]:
    """Give recipes archives that are damaged, or that would write elsewhere."""
    mirror = place.folder / "mirror"
    corpus_mirror.build(mirror, "multi30k")
    whole = {path: path.read_bytes() for path in sorted(mirror.rglob("*")) if path.is_file()}
    outside = place.new_folder("outside")
    (outside / "precious").write_text("mine", encoding="utf-8")
    before = digests([outside])
    while True:
        for path, content in whole.items():
            kind = place.chance.choice(["damaged", "upwards", "absolute", "link", "device", "large"])
            if kind == "damaged":
                path.write_bytes(_BYTES[place.chance.choice(["cut off", "a bit anywhere", "noise within"])](
                    content, place.chance))  # fmt: skip
            else:
                path.write_bytes(_escaping(path, content, kind, outside))
            work = Work("multi30k", place.new_folder("work") / "work", {
                "PYTHON": str(place.python.python), "MIRROR": str(mirror), "IGNORE_CHECKSUMS": "1",
            })  # fmt: skip
            process = work.start("prepare")
            try:
                _, error = process.communicate(timeout=PATIENCE)
                outcome = Outcome.REFUSED if process.returncode else Outcome.HARMLESS
                if "Traceback" in error or (process.returncode and not error.strip()):
                    outcome = Outcome.SURPRISED
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                outcome, error = Outcome.HUNG, ""
            if digests([outside]) != before:
                outcome = Outcome.LOST
            yield Finding(kind, outcome, f"{path.name}: {error.strip()[-500:]}")
            path.write_bytes(content)
            shutil.rmtree(work.folder.parent)


def _escaping(path: Path, content: bytes, kind: str, outside: Path) -> bytes:
    """Return an archive with another member in front of its own that leads out of the folder it is unpacked in."""
    evil = {"upwards": f"../../../../../../..{outside}/precious", "absolute": f"{outside}/precious"}
    memory = io.BytesIO()
    if zipfile.is_zipfile(io.BytesIO(content)):
        with zipfile.ZipFile(memory, "w") as target, zipfile.ZipFile(io.BytesIO(content)) as source:
            target.writestr(evil.get(kind, "training/../../precious"), b"overwritten")
            for name in source.namelist():
                target.writestr(name, source.read(name))
        return memory.getvalue()
    try:
        source_tar = tarfile.open(fileobj=io.BytesIO(content))  # noqa: SIM115  # closed below
    except tarfile.TarError:
        return content + b"\0" * 9
    with source_tar, tarfile.open(fileobj=memory, mode="w:gz") as target_tar:
        member = tarfile.TarInfo(evil.get(kind, "inner"))
        if kind == "link":
            member.type, member.linkname = tarfile.SYMTYPE, str(outside)
            target_tar.addfile(member)
            member = tarfile.TarInfo("inner/precious")
        elif kind == "device":
            member.type = tarfile.CHRTYPE
            target_tar.addfile(member)
            member = tarfile.TarInfo("../precious")
        data = b"overwritten" * (10_000 if kind == "large" else 1)
        member.size = len(data)
        target_tar.addfile(member, io.BytesIO(data))
        for one in source_tar:
            target_tar.addfile(one, source_tar.extractfile(one) if one.isfile() else None)
    return memory.getvalue()
