"""SIGKILL at random moments, and disks that are full: what is started again ends as if nothing had been."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from attacks import PATIENCE, Finding, Outcome, Place, digests, killed_within, refusal
from elastic_runs import GROWING, train_through_kills
from probe_checkpoints import checkpoint_of, data_in
from training_states import assert_same_state

from fairseq_compat import checkpoints
from fairseq_compat.errors import UserError

_WIDTHS = [f"--{side}-{size}" for side in ("encoder", "decoder") for size in ("embed-dim=32", "attention-heads=2")]
_FEED_FORWARD = ["--encoder-ffn-embed-dim=64", "--decoder-ffn-embed-dim=64"]
_GROWTH = ["--task", "translation_layer_growth", "--lr-scheduler", "inverse_sqrt_restart", "--growth-stages"]
_LEARNING = [
    "--share-all-embeddings", "--optimizer", "adam", "--lr", "0.005", "--warmup-updates", "4", "--max-tokens", "600",
    "--criterion", "label_smoothed_cross_entropy", "--label-smoothing", "0.1", "--cpu", "--log-format", "json",
    "--save-interval-updates", "1", "--keep-interval-updates", "2", "--validate-interval", "99",
]  # fmt: skip

#: Trainings that are killed: a name and its options.
TRAININGS: dict[str, list[str]] = {
    "depth-wise, both sides grow": [
        "--arch", "depthwise_lstm_transformer", *_WIDTHS, "--depthwise-hidden-dim", "32",
        *_GROWTH, "1:4u,2:3u,3:5u", "--growth-side", "both",
    ],
    "sdt, moments stay, bf16": [
        "--arch", "sdt_transformer", *_WIDTHS, *_FEED_FORWARD, "--encoder-block-size", "1", "--decoder-layers", "2",
        *_GROWTH, "2:4u,3:3u,4:5u", "--growth-optimizer-state", "keep", "--bf16", "--num-workers", "0",
    ],
    "mute, noise, moving average": [
        "--arch", "mute_transformer_sequential", *_WIDTHS, *_FEED_FORWARD, "--encoder-layers", "2",
        "--decoder-layers", "1", "--lr-scheduler", "inverse_sqrt", "--store-ema", "--ema-decay", "0.9",
        "--update-freq", "2", "--max-update", "10",
        "--criterion", "label_smoothed_cross_entropy_with_auxiliary",
    ],
    "mute grows": [
        "--arch", "mute_transformer", *_WIDTHS, *_FEED_FORWARD, "--encoder-units", "2", "--decoder-layers", "1",
        *_GROWTH, "1:4u,2:4u,3:4u", "--growth-strategy", "interpolation",
    ],
    "stock Transformer": [
        "--arch", "transformer", *_WIDTHS, *_FEED_FORWARD, "--encoder-layers", "2", "--decoder-layers", "1",
        "--lr-scheduler", "inverse_sqrt", "--max-update", "10",
    ],
}  # fmt: skip


def _data(place: Place) -> str:
    def make() -> str:
        lines = [
            " ".join(f"w{place.chance.randrange(8)}" for _ in range(place.chance.randint(2, 9))) for _ in range(500)
        ]
        return data_in(place.folder / "data", train=lines)

    return str(place.once("data", make))


def trainings(place: Place) -> Iterator[Finding]:
    """Kill trainings again and again until they end, and compare with those that were left alone."""
    data = _data(place)
    while True:
        for name, options in TRAININGS.items():
            command = ["fairseq-depthwise", "train", data, *_LEARNING, *options, "--save-dir"]

            def alone(command: Sequence[str] = command) -> tuple[Path, float]:
                folder, begin = place.new_folder("alone"), time.monotonic()
                place.whole(*command, folder)
                return folder, time.monotonic() - begin

            whole, seconds = place.once(name, alone)
            yield from _killed_training(place, name, command, whole, seconds)


def _killed_training(place: Place, name: str, command: Sequence[str], whole: Path, seconds: float) -> Iterator[Finding]:
    folder = place.new_folder("killed")
    moments: list[str] = []
    while len(moments) < 12:
        moment = place.chance.uniform(0.1, 1.0) * seconds
        process = place.start(*command, folder)
        if not killed_within(process, moment):
            break
        moments.append(f"{moment:.2f}")
        if broken := _unreadable(folder):
            yield Finding(name, Outcome.LOST, f"{broken} after {moments}")
            return
    result = place.run(*command, folder)
    about = f"killed after {', '.join(moments)} s"
    if result.returncode == -1:
        yield Finding(name, Outcome.HUNG, about)
    elif result.returncode:
        yield Finding(name, Outcome.LOST, f"{about}: {result.stderr[-800:]}")
    else:
        difference = _difference(whole, folder)
        finding = Finding(name, Outcome.DIFFERENT if difference else Outcome.EQUAL, f"{about}: {difference}")
        yield from [finding] * max(1, len(moments))
        if list(folder.glob("*.fairseq-unfinished")):
            yield Finding(name, Outcome.DIFFERENT, f"{about}: an unfinished file is left")
    if result.returncode == 0:
        shutil.rmtree(folder)


def _unreadable(folder: Path) -> str:
    """Return what is wrong with a checkpoint of a folder."""
    for path in folder.glob("checkpoint*.pt"):
        try:
            checkpoints.load_checkpoint(path)
        except (UserError, OSError) as error:
            return str(error)
    return ""


def _difference(whole: Path, folder: Path) -> str:
    """Return in what the ends of two trainings differ."""
    try:
        assert_same_state(whole / "checkpoint_last.pt", folder / "checkpoint_last.pt")
    except (AssertionError, OSError) as error:
        return f"{type(error).__name__}: {error}"[:400]
    return ""


def commands(place: Place) -> Iterator[Finding]:
    """Kill commands that write: what they read and what was there before stays, and the next call is whole."""
    _, inputs, words = _commands(place)
    while True:
        for name, made in words.items():
            output = place.new_folder("output") / "result"
            begin = time.monotonic()
            place.whole(*made(output))
            seconds, expected = time.monotonic() - begin, _content(output)
            before = digests(inputs)
            for replaced in (False, True):
                if not replaced:
                    _remove(output)
                moment = place.chance.uniform(0.0, 1.0) * seconds
                again = [*made(output), *(["--force"] if replaced else [])]
                if not killed_within(place.start(*again), moment):
                    continue
                about = f"killed after {moment:.2f} s, {'replacing' if replaced else 'new'}"
                if digests(inputs) != before:
                    yield Finding(name, Outcome.LOST, f"{about}: an input changed")
                if replaced and _content(output) != expected:
                    yield Finding(name, Outcome.LOST, f"{about}: the output before is gone")
                if not replaced and _content(output) not in (None, expected):
                    yield Finding(name, Outcome.DIFFERENT, f"{about}: half an output")
                result = place.run(*made(output), *(["--force"] if _content(output) is not None else []))
                if result.returncode:
                    yield Finding(name, Outcome.SURPRISED, f"{about}: {result.stderr[-600:]}")
                else:
                    equal = _content(output) == expected
                    yield Finding(name, Outcome.EQUAL if equal else Outcome.DIFFERENT, about)
            shutil.rmtree(output.parent)


def _commands(place: Place) -> tuple[str, list[Path], dict[str, Callable[[Path], list[object]]]]:
    data = _data(place)
    folder = place.new_folder("inputs")
    models = [checkpoint_of(folder, "sdt_transformer", f"checkpoint{number}.pt") for number in (1, 2)]
    text = folder / "text"
    text.write_text("".join(f"w{number % 8} w{number % 5} w3\n" for number in range(60)), encoding="utf-8")
    return data, [folder, Path(data)], {
        "average": lambda out: ["fairseq-depthwise", "average", *models, "--output", out],
        "grow": lambda out: ["fairseq-depthwise", "grow", models[0], out, "--layers", "8"],
        "export": lambda out: ["fairseq-depthwise", "export", models[0], out, "--data", data],
        "translate": lambda out: [
            "fairseq-depthwise", "translate", models[0], text, "--data", data, "--cpu", "--tokenized",
            "--max-len-b", "9", "--output", out,
        ],
        "similarity": lambda out: [
            "fairseq-depthwise", "similarity", models[0], "--data", data, "--json", "--output", f"{out}.svg",
        ],
    }  # fmt: skip


def _content(output: Path) -> Any:
    """Return what an output says, without the times that are in its bytes."""
    if output.is_dir():
        return sorted(path.name for path in output.iterdir()), json.loads((output / "config.json").read_text("utf-8"))
    figure = output.with_name(f"{output.name}.svg")
    path = figure if figure.exists() else output
    if not path.exists():
        return None
    content = path.read_bytes()
    if not content.startswith(b"PK"):
        return content
    state = checkpoints.load_checkpoint(path)
    return {name: tensor.contiguous().view(torch.uint8).numpy().tobytes() for name, tensor in state["model"].items()}


def _remove(output: Path) -> None:
    for path in list(output.parent.iterdir()):
        shutil.rmtree(path) if path.is_dir() else path.unlink()


#: Runs a command with a limit for the size of its files.
_LIMITED = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
limit = int(sys.argv.pop(1))
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
sys.argv[0] = "fairseq-depthwise"
from fairseq_depthwise import cli
sys.exit(cli.main())
"""


def full_disks(place: Place) -> Iterator[Finding]:
    """Limit the size of files at a random number of bytes: one sentence, no half file, and the next call is whole."""
    data, inputs, words = _commands(place)
    name, options = "training", TRAININGS["sdt, moments stay, bf16"]
    training = ["train", data, *_LEARNING, *options, "--save-dir"]
    whole = place.new_folder("alone")
    place.whole("fairseq-depthwise", *training, whole)
    largest = max(path.stat().st_size for path in whole.glob("*.pt"))
    while True:
        folder = place.new_folder("full")
        limits = [place.chance.randrange(1, largest) for _ in range(3)]
        for limit in limits:
            finding = refusal(place.run("python", "-c", _LIMITED, limit, *training, folder), name, f"at {limit} bytes")
            broken = _unreadable(folder)
            yield Finding(name, Outcome.LOST, broken) if broken else finding
        result = place.run("fairseq-depthwise", *training, folder)
        equal = result.returncode == 0 and not _difference(whole, folder)
        yield Finding(name, Outcome.EQUAL if equal else Outcome.LOST, f"{limits}: {result.stderr[-400:]}")
        shutil.rmtree(folder)
        for name, made in words.items():
            output = place.new_folder("output") / "result"
            place.whole(*made(output))
            expected, before = _content(output), digests(inputs)
            size = max(path.stat().st_size for path in [output, *output.parent.rglob("*")] if path.is_file())
            limit = place.chance.randrange(1, size)
            _, *given = made(output)
            result = place.run("python", "-c", _LIMITED, limit, *given, "--force")
            finding = refusal(result, name, f"at {limit} of {size} bytes")
            if digests(inputs) != before or _content(output) != expected:
                finding = Finding(name, Outcome.LOST, f"at {limit} of {size} bytes")
            yield finding
            shutil.rmtree(output.parent)


def ranks(place: Place) -> Iterator[Finding]:
    """Kill ranks of elastic trainings that grow; they end by themselves, as if nothing had been."""
    options = [
        "--processes", 2, "--max-restarts", 20, _data(place), *GROWING, "--growth-stages", "1:10u,2:10u,3:20u",
        "--update-freq", 2, "--save-interval-updates", 3, "--keep-interval-updates", 2,
    ]  # fmt: skip
    whole = place.new_folder("alone")
    train_through_kills(place.python.python, whole, options, [])
    while True:
        moments = [place.chance.uniform(0.0, 8.0) for _ in range(3)]
        folder, about = place.new_folder("killed"), f"killed after {moments} s"
        try:
            seconds = train_through_kills(place.python.python, folder, options, moments, after_update=False)
        except AssertionError as error:
            yield Finding("rank", Outcome.HUNG if "hangs" in str(error) else Outcome.LOST, f"{about}: {error}")
            continue
        difference = _difference(whole, folder)
        for taken in seconds:
            outcome = Outcome.DIFFERENT if difference else Outcome.HUNG if taken > 60 else Outcome.EQUAL
            yield Finding("rank", outcome, f"{about}, the next update after {taken:.0f} s: {difference}")


def clusters(place: Place) -> Iterator[Finding]:
    """Kill commands that let Ray translate a text; started again, they write what one process writes."""
    folder = place.new_folder("inputs")
    model = checkpoint_of(folder, "sdt_transformer")
    text = folder / "text"
    text.write_text("".join(f"w{number % 8} w{number % 5} w3\n" for number in range(400)), encoding="utf-8")
    options = [model, text, "--data", _data(place), "--cpu", "--tokenized", "--max-len-b", 9]
    place.whole("fairseq-depthwise", "translate", *options, "--output", folder / "alone")
    command = [
        sys.executable, "-m", "fairseq_depthwise", "translate", *options, "--ray", "--ray-actors", 2,
        "--buffer-lines", 20, "--output",
    ]  # fmt: skip
    while True:
        output = place.new_folder("killed") / "result"
        moment = place.chance.uniform(5.0, 40.0)
        about = f"killed after {moment:.1f} s"
        killed_within(_leader([*command, output]), moment)
        process = _leader([*command, output])
        if killed_within(process, PATIENCE):
            yield Finding("driver", Outcome.HUNG, about)
        elif output.exists() and output.read_bytes() == (folder / "alone").read_bytes():
            yield Finding("driver", Outcome.EQUAL, about)
        else:
            yield Finding("driver", Outcome.LOST, about)


def _leader(words: Sequence[object]) -> subprocess.Popen[str]:
    """Start a program that leads a group, so that what it starts can be killed with it."""
    return subprocess.Popen(
        list(map(str, words)), text=True, start_new_session=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )  # fmt: skip
