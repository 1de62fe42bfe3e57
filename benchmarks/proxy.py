"""Short trainings that stand for long ones: which form of the depth-wise cell learns best, by validation loss only.

    bash recipes/multi30k/prepare.sh with MERGES=1000 and with MERGES=4000, into WORK/short and WORK/long
    python benchmarks/proxy.py --work WORK --jobs 2 [--only long:open:1 ...]
    python benchmarks/proxy.py --work WORK --table

Multi30k English-German through fairseq's trainer, 4 + 4 layers. What has ended is not done again; all results are in
one record. No test set is read.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from fairseq_cli import preprocess, train
from torch import nn

from fairseq_compat.files import atomic_write
from fairseq_compat.versions import recorded_versions
from fairseq_depthwise.models.depthwise_lstm import cell, layers, model

RECORD = Path(__file__).parents[1] / "docs" / "records" / "proxy.json"

#: size -> width, inner width, tokens of a batch as --max-tokens counts them (1,024 and 2,048 target tokens), updates,
#: warm-up, updates between validations.
SIZES = {"short": (64, 128, 1210, 600, 100, 200), "long": (128, 256, 2296, 1500, 200, 300)}
RATE = 0.006

_STOCK = "transformer --encoder-normalize-before --decoder-normalize-before"
_CELL = "depthwise_lstm_transformer"
_GATES = f"{_CELL} --depthwise-forget-bias 2 --depthwise-gate-gain 0.25"
_SKIP = "--depthwise-attention-skip"
_OPEN = f"{_CELL}_open"

#: name -> --arch and options; behind a + the names of PATCHES.
SYSTEMS = {
    "stock": _STOCK,
    "stock-rate2": f"{_STOCK} --lr {2 * RATE}",
    "paper": _CELL,
    "paper-rate2": f"{_CELL} --lr {2 * RATE}",
    "no-attention-dropout": f"{_CELL} + no_attention_dropout",
    "neutron-embeddings": f"{_CELL} + neutron_embeddings",
    "gain": f"{_CELL} --depthwise-gate-gain 0.25",
    "skip": f"{_CELL} {_SKIP}",
    "bias": f"{_CELL} --depthwise-forget-bias 2",
    "bias-gain": _GATES,
    "bias-gain-rate2": f"{_GATES} --lr {2 * RATE}",
    "open": _OPEN,
    "open-joint": f"{_OPEN} --depthwise-gate-norm joint",
    **{
        f"open-bias{bias}-gain{gain}": f"{_OPEN} --depthwise-forget-bias {bias} --depthwise-gate-gain {gain}"
        for bias in (1, 2, 3)
        for gain in (0.1, 0.25, 0.5)
    },
    **{f"open-{patch.replace('_', '-')}": f"{_OPEN} + {patch}" for patch in (
        "empty_cell", "norm_out", "full_memory", "chrono", "encoder_sublayers"
    )},
}  # fmt: skip

_TABLES = {
    "short": ("stock", "stock-rate2", "paper", "paper-rate2", "no-attention-dropout", "neutron-embeddings", "gain",
              "skip", "bias", "bias-gain", "bias-gain-rate2", "open"),
    "long": ("stock", "paper", "bias-gain", "skip", "open"),
}  # fmt: skip
RUNS = [f"long:{name}:1" for name in _TABLES["long"]]
RUNS += [f"long:{name}:{seed}" for seed in (2, 3) for name in ("stock", "open")]
RUNS += [f"short:{name}:1" for name in _TABLES["short"]]
RUNS += [f"short:{name}:2" for name in ("stock", "paper", "bias-gain")]
RUNS += [f"long:{name}:1" for name in SYSTEMS if name.startswith("open-") and name != "open-bias2-gain0.25"]


def no_attention_dropout() -> None:
    layers.Dropout = lambda probability: nn.Identity()  # type: ignore[assignment,misc]  # those of the layers alone


def neutron_embeddings() -> None:
    """Start embeddings at U(+-sqrt(2 / (V + d)))."""

    def build(cls: Any, cfg: Any, task: Any) -> Any:
        built = original(cls, cfg, task)
        table = built.encoder.embedding.tokens.weight
        nn.init.uniform_(table.data[:], -math.sqrt(2 / sum(table.shape)), math.sqrt(2 / sum(table.shape)))
        return built

    original = model.DepthwiseLSTMTransformer.build_model.__func__  # type: ignore[attr-defined]
    model.DepthwiseLSTMTransformer.build_model = classmethod(build)  # type: ignore[method-assign,assignment]


def empty_cell() -> None:
    """Cell_0 = 0 in the place of the embedding."""
    layers.DepthwiseConnection.initial_state = (  # type: ignore[method-assign]
        lambda self, embedded: cell.DepthwiseState(embedded, torch.zeros_like(embedded))
    )


def norm_out() -> None:
    """c = [LN(Out) ; x], the norm without parameters."""

    def forward(self: Any, attended: Any, state: Any) -> Any:
        joined = torch.cat([F.layer_norm(state.output, state.output.shape[-1:]), attended], dim=-1)
        return cell._update(self.gates(joined), self.hidden_net(joined), attended, state)

    cell.DepthwiseLSTMCell.forward = forward  # type: ignore[method-assign]


def full_memory() -> None:
    """Cell_i = Cell_{i-1} + i h: a residual connection of the cell state, with no forget gate."""
    original = cell._update
    cell._update = lambda gates, *rest: original((gates[0], torch.ones_like(gates[1]), gates[2]), *rest)


def chrono() -> None:
    """Forget bias log U(1, T - 1) with T = 8, twice the layers, input bias its negative."""
    original = model.Gates

    def gates(**options: Any) -> Any:
        built = original(**options)
        with torch.no_grad():
            built.norm_bias[1] = torch.empty_like(built.norm_bias[1]).uniform_(1, 7).log()
            built.norm_bias[0] = -built.norm_bias[1]
        return built

    model.Gates = gates  # type: ignore[assignment,misc]


def encoder_sublayers() -> None:
    """A second cell in each encoder layer, whose x is a feed-forward net of the first one's output."""
    original = model.DepthwiseStacks.encoder_layers

    def forward(self: Any, state: Any, padding: Any) -> Any:
        state = plain(self, state, padding)
        return self.second_cell(self.dropout(self.feed_forward(state.output)), state)

    def build(self: Any) -> Any:
        built, width = original(self), self.width
        inner, new_cell = self.config.depthwise_hidden_dim, self._cells("encoder", 2 * width, place="b")
        for layer in built:
            layer.second_cell = new_cell()
            layer.feed_forward = nn.Sequential(
                nn.LayerNorm(width), nn.Linear(width, inner), nn.ReLU(), nn.Linear(inner, width)
            )
        return built

    plain = layers.DepthwiseEncoderLayer.forward
    layers.DepthwiseEncoderLayer.forward = forward  # type: ignore[method-assign]
    model.DepthwiseStacks.encoder_layers = build  # type: ignore[method-assign]


PATCHES: dict[str, Callable[[], None]] = {
    function.__name__: function
    for function in (
        no_attention_dropout,
        neutron_embeddings,
        empty_cell,
        norm_out,
        full_memory,
        chrono,
        encoder_sublayers,
    )
}


def prepare(work: Path) -> None:
    """Make ``WORK/data`` from the recipe's text: its validation set, and as many training sentences as a second one."""
    if (work / "data").exists():
        return
    for language in ("en", "de"):
        with (work / f"text/bpe.train.{language}").open(encoding="utf-8", newline="\n") as lines:
            (work / f"seen.{language}").write_text("".join(line for line, _ in zip(lines, range(1014), strict=False)))
    argv = ["--source-lang", "en", "--target-lang", "de", "--trainpref", f"{work}/text/bpe.train", "--validpref",
            f"{work}/text/bpe.valid,{work}/seen", "--destdir", f"{work}/data", "--joined-dictionary"]  # fmt: skip
    preprocess.main(preprocess.options.get_preprocessing_parser().parse_args(argv))


def run_one(name: str, work: Path) -> None:
    """Train in this process; the log is WORK/NAME.json."""
    size, system, seed = name.split(":")
    width, inner, tokens, updates, warm_up, every = SIZES[size]
    words, _, patch = SYSTEMS[system].partition(" + ")
    if patch:
        PATCHES[patch]()
    inner_of = ("--encoder-ffn-embed-dim", "--decoder-ffn-embed-dim") if words.startswith("transformer") else (
        "--depthwise-hidden-dim",
    )  # fmt: skip
    sizes = {f"--{side}-{what}": value for side in ("encoder", "decoder")
             for what, value in (("embed-dim", width), ("attention-heads", 4), ("layers", 4))}  # fmt: skip
    sizes |= dict.fromkeys(inner_of, inner) | {"--max-tokens": tokens, "--max-update": updates, "--seed": seed}
    sizes |= {"--total-num-update": updates, "--warmup-updates": warm_up, "--validate-interval-updates": every}
    options = (
        "--share-all-embeddings --dropout 0.3 --attention-dropout 0 --activation-dropout 0 --optimizer adam "
        f"--adam-betas (0.9,0.98) --adam-eps 1e-9 --lr {RATE} --lr-scheduler polynomial_decay --clip-norm 0 "
        "--criterion label_smoothed_cross_entropy_with_auxiliary --label-smoothing 0 --valid-subset valid,valid1 "
        "--ignore-unused-valid-subsets "
        "--validate-interval 1000 --cpu --log-format json --log-interval 100 --user-dir fairseq_depthwise --arch "
    )
    pairs = [str(word) for pair in sizes.items() for word in pair]
    sys.argv = ["fairseq-train", str(work / size / "data"), *options.split(), *words.split(), *pairs]
    sys.argv += ["--log-file", str(work / f"{name}.log"), "--save-dir", str(work / name), "--no-epoch-checkpoints"]
    train.cli_main()


def result_of(log: Path) -> dict[str, Any]:
    """Return the validation losses of a training's log, in bits a token, by update."""
    valid: dict[str, list[Any]] = {"valid": [], "valid1": []}
    for line in log.read_text(encoding="utf-8").splitlines():
        entry = json.loads(line[line.index("{") :]) if line.rstrip().endswith("}") and "_nll_loss" in line else {}
        for subset, values in valid.items():
            if f"{subset}_nll_loss" in entry:
                values.append([int(entry[f"{subset}_num_updates"]), float(entry[f"{subset}_nll_loss"])])
    return {"valid": valid["valid"], "seen": valid["valid1"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--only", nargs="+", choices=RUNS, default=RUNS, metavar="SIZE:SYSTEM:SEED")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        run_one(options.one, options.work)
        return
    record = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
    for size in SIZES:
        prepare(options.work / size)

    def run(name: str) -> None:
        if name in record:
            return
        log = options.work / f"{name}.log"
        log.unlink(missing_ok=True)
        command = [sys.executable, __file__, "--work", str(options.work), "--one", name]
        subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=subprocess.DEVNULL)
        commit = subprocess.check_output(["git", "rev-parse", "--short", "HEAD"], cwd=RECORD.parent, text=True).strip()
        record[name] = result_of(log) | {"options": SYSTEMS[name.split(":")[1]], "versions": recorded_versions()}
        record[name]["commit"] = commit
        with atomic_write(RECORD) as file:
            file.write((json.dumps(record, indent=1, sort_keys=True) + "\n").encode())

    with ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(run, options.only))


if __name__ == "__main__":
    main()
