"""Short trainings that stand for long ones: which form of the depth-wise cell learns best, by validation loss only.

    python benchmarks/proxy.py --work WORK [--jobs 2] [--only long:open:1 ...]

Multi30k English-German through fairseq's trainer, 4 + 4 layers, float32, one thread. WORK/short and WORK/long are
folders of ``recipes/multi30k/prepare.sh`` with MERGES=1000 and MERGES=4000. What is in the record is not trained again.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from records import integer, make_parser, read_record, run_program, setup_of, write_record

from fairseq_compat import UserError

#: size -> width, inner width, tokens of a batch as --max-tokens counts them (1,024 and 2,048 target tokens), updates,
#: warm-up, updates between validations.
SIZES = {"short": (64, 128, 1210, 600, 100, 200), "long": (128, 256, 2296, 1500, 200, 300)}
RATE = 0.006

_STOCK = "transformer --encoder-normalize-before --decoder-normalize-before"
_CELL = "depthwise_lstm_transformer"
_GATES = f"{_CELL} --depthwise-forget-bias 2 --depthwise-gate-gain 0.25"
_OPEN = f"{_CELL}_open"
_TWICE = f"--lr {2 * RATE}"

#: name -> --arch and options.
SYSTEMS = {
    "stock": _STOCK,
    "stock-rate2": f"{_STOCK} {_TWICE}",
    "paper": _CELL,
    "paper-rate2": f"{_CELL} {_TWICE}",
    "gain": f"{_CELL} --depthwise-gate-gain 0.25",
    "skip": f"{_CELL} --depthwise-attention-skip",
    "bias": f"{_CELL} --depthwise-forget-bias 2",
    "bias-gain": _GATES,
    "bias-gain-rate2": f"{_GATES} {_TWICE}",
    "open": _OPEN,
    "open-joint": f"{_OPEN} --depthwise-gate-norm joint",
    **{
        f"open-bias{bias}-gain{gain}": f"{_OPEN} --depthwise-forget-bias {bias} --depthwise-gate-gain {gain}"
        for bias in (1, 2, 3)
        for gain in (0.1, 0.25, 0.5)
        if (bias, gain) != (2, 0.25)  # that is open
    },
}

#: The tables: size and systems, then with further seeds.
RUNS = [f"long:{name}:1" for name in ("stock", "paper", "bias-gain", "skip", "open")]
RUNS += [f"long:{name}:{seed}" for seed in (2, 3) for name in ("stock", "open")]
RUNS += [f"short:{name}:1" for name in SYSTEMS if not name.startswith("open-")]
RUNS += [f"short:{name}:2" for name in ("stock", "paper", "bias-gain")]
RUNS += [f"long:{name}:1" for name in SYSTEMS if name.startswith("open-")]
RUNS += [f"long:open-bias1-gain0.1:{seed}" for seed in (2, 3)]  # the best of the search


def prepare(work: Path) -> None:
    """Make ``WORK/data`` from the recipe's text: its validation set, and as many training sentences as a second one."""
    if (work / "data").exists():
        return
    if not (work / "text").is_dir():
        raise UserError(f"{work} is no folder of recipes/multi30k/prepare.sh; run that with WORK={work}")
    for language in ("en", "de"):
        with (work / f"text/bpe.train.{language}").open(encoding="utf-8", newline="\n") as lines:
            (work / f"seen.{language}").write_text("".join(line for line, _ in zip(lines, range(1014), strict=False)))
    command = [sys.executable, "-m", "fairseq_cli.preprocess", "--source-lang", "en", "--target-lang", "de"]
    command += ["--trainpref", f"{work}/text/bpe.train", "--validpref", f"{work}/text/bpe.valid,{work}/seen"]
    subprocess.run([*command, "--destdir", str(work / "data"), "--joined-dictionary"], check=True)


def train(name: str, work: Path) -> dict[str, Any]:
    """Train in a process of its own, and return the losses on the validation set and on training sentences."""
    size, system, seed = name.split(":")
    width, inner, tokens, updates, warm_up, every = SIZES[size]
    words = SYSTEMS[system].split()
    sides = (
        ("encoder-ffn-embed-dim", "decoder-ffn-embed-dim") if words[0] == "transformer" else ("depthwise-hidden-dim",)
    )
    shape = [f"--{side}-{what}={value}" for side in ("encoder", "decoder")
             for what, value in (("embed-dim", width), ("attention-heads", 4), ("layers", 4))]  # fmt: skip
    shape += [f"--{side}={inner}" for side in sides]
    log = work / f"{name}.log"
    log.unlink(missing_ok=True)
    shutil.rmtree(work / name, ignore_errors=True)  # what a training that was stopped has left: its log is gone
    commit = subprocess.check_output(["git", "describe", "--always", "--dirty"], text=True).strip()
    command = [sys.executable, "-m", "fairseq_depthwise", "train", str(work / size / "data"), "--cpu", *shape]
    command += ["--share-all-embeddings", "--dropout", "0.3", "--attention-dropout", "0", "--activation-dropout", "0"]
    command += ["--optimizer", "adam", "--adam-betas", "(0.9, 0.98)", "--adam-eps", "1e-9", "--clip-norm", "0"]
    command += ["--lr", str(RATE), "--lr-scheduler", "polynomial_decay", "--total-num-update", str(updates)]
    command += ["--max-update", str(updates), "--warmup-updates", str(warm_up), "--max-tokens", str(tokens)]
    command += ["--criterion", "label_smoothed_cross_entropy_with_auxiliary", "--label-smoothing", "0", "--seed", seed]
    command += ["--valid-subset", "valid,valid1", "--ignore-unused-valid-subsets", "--validate-interval", "1000"]
    command += ["--validate-interval-updates", str(every), "--save-dir", str(work / name), "--no-epoch-checkpoints"]
    command += ["--log-format", "json", "--log-file", str(log), "--arch", *words]
    subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=subprocess.DEVNULL)
    found: dict[str, list[Any]] = {"valid": [], "valid1": []}
    for line in log.read_text(encoding="utf-8").splitlines():
        entry = json.loads(line) if line.startswith("{") and "_nll_loss" in line else {}
        for subset, losses in found.items():
            if f"{subset}_nll_loss" in entry:
                losses.append([int(entry[f"{subset}_num_updates"]), float(entry[f"{subset}_nll_loss"])])
    return {"options": SYSTEMS[system], "valid": found["valid"], "seen": found["valid1"], "commit": commit}


def run(options: argparse.Namespace, given: Sequence[str]) -> None:
    """Train what is missing, and write the record after each."""
    record = read_record(options.records, "proxy") or {"runs": {}}
    record["setup"] = setup_of("proxy", given) | {"threads": 1}  # of each training
    for size in SIZES:
        prepare(options.work / size)

    def run_one(name: str) -> None:
        if name not in record["runs"]:
            record["runs"][name] = train(name, options.work)
            write_record(options.records, "proxy", record)

    with ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(run_one, options.only))


def parse_options(given: Sequence[str]) -> argparse.Namespace:
    """Parse the options."""
    parser = make_parser(__doc__)
    parser.add_argument("--work", type=Path, required=True, help="folder with the prepared folders short and long")
    parser.add_argument("--only", nargs="+", choices=RUNS, default=RUNS, metavar="SIZE:SYSTEM:SEED")
    parser.add_argument("--jobs", type=integer(1), default=1, help="trainings at a time (default: 1)")
    return parser.parse_args(given)


if __name__ == "__main__":
    sys.exit(run_program("proxy", parse_options, run, None))
