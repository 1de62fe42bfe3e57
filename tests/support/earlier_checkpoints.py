"""Make the small checkpoints of tests/earlier, with which later versions are tested (``test_earlier_checkpoints.py``).

    python tests/support/earlier_checkpoints.py FOLDER

Run once, with the version whose checkpoints are to load for good. FOLDER gets ``text``, ``data-bin`` and a folder for
each system with its checkpoint, the command that trained it (``command.txt``, to be run in FOLDER next to a link to
the plugin) and ``expected.json``: translations of the test sentences, and losses of the next updates.
"""

from __future__ import annotations

import json
import random
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PLUGIN = Path(__file__).parents[2] / "fairseq_depthwise"

#: Sentence pairs; the second half of the test's are from the training.
SIZES = {"train": 64, "valid": 4, "test": 8}
WORDS = [f"w{number}" for number in range(54)]

UPDATES = 150
#: What the resumed training's ``--max-update`` is; its losses are recorded.
RESUMED_UPDATES = UPDATES + 4

TRAINING = (
    "--cpu --seed 1 --batch-size 8 --optimizer adam --lr 0.03 --warmup-updates 20 --disable-validation "
    "--no-epoch-checkpoints --no-progress-bar --log-format json --log-interval 1"
)
# No dropout: its masks depend on the processor, and so would the losses.
SIZE = (
    "--encoder-layers 2 --decoder-layers 2 --encoder-embed-dim 8 --decoder-embed-dim 8 "
    "--encoder-attention-heads 2 --decoder-attention-heads 2 --share-all-embeddings --dropout 0"
)
FEED_FORWARD = "--encoder-ffn-embed-dim 16 --decoder-ffn-embed-dim 16"
TRANSLATION_LOSS = "--criterion label_smoothed_cross_entropy --label-smoothing 0.1"
PLUGGED = f"--user-dir {PLUGIN.name}"

#: The folder of each system, and its options.
SYSTEMS = {
    "transformer": f"--arch transformer {SIZE} {FEED_FORWARD} {TRANSLATION_LOSS} --lr-scheduler inverse_sqrt",
    "depthwise_lstm": (
        f"{PLUGGED} --arch depthwise_lstm_transformer {SIZE} --depthwise-hidden-dim 16 {TRANSLATION_LOSS} "
        "--lr-scheduler inverse_sqrt"
    ),
    "depthwise_lstm_two_cells": (
        f"{PLUGGED} --arch depthwise_lstm_transformer {SIZE} --depthwise-hidden-dim 16 --decoder-merge two-cells "
        f"--depthwise-kernel eager {TRANSLATION_LOSS} --lr-scheduler inverse_sqrt"
    ),
    "sdt": (
        f"{PLUGGED} --task translation_layer_growth --growth-stages 2:90u,3: --arch sdt_transformer "
        f"{SIZE.replace('--encoder-layers 2 ', '')} {FEED_FORWARD} --encoder-block-size 1 {TRANSLATION_LOSS} "
        "--lr-scheduler inverse_sqrt_restart"
    ),
    "mute_sequential": (
        f"{PLUGGED} --arch mute_transformer_sequential {SIZE} {FEED_FORWARD} "
        "--criterion label_smoothed_cross_entropy_with_auxiliary --label-smoothing 0.1 --lr-scheduler inverse_sqrt"
    ),
    "linearized": (
        f"{PLUGGED} --arch linearized_transformer --criterion linearization_probe "
        "--probe-path depthwise_lstm/checkpoint_last.pt --probe-layers encoder.1,decoder.2 --lr-scheduler inverse_sqrt"
    ),
}


def run(folder: Path, *arguments: object) -> str:
    """Run a command of this environment in ``folder``; return all that it prints."""
    name, *options = map(str, arguments)
    command = [str(Path(sys.executable).parent / name), *options]
    ended = subprocess.run(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if ended.returncode:
        raise SystemExit(f"{shlex.join(command)}\n{ended.stdout}")
    return ended.stdout


def losses(log: str) -> list[float]:
    """Return the loss of every update in a log."""
    return [float(loss) for loss in re.findall(r'\| train_inner \| \{.*?"loss": "([^"]+)"', log)]


def hypotheses(output: str) -> list[str]:
    """Return score and text of every sentence's best hypothesis, in order, of what ``fairseq-generate`` prints."""
    lines = re.findall(r"^H-(\d+)\t(\S+)\t(.*)$", output, re.MULTILINE)
    return [f"{float(score):.4f} {text}" for _, score, text in sorted(lines, key=lambda line: int(line[0]))]


def write_data(folder: Path) -> None:
    """Write the sentences, and the data that ``fairseq-preprocess`` makes of them; targets are sources reversed."""
    chance = random.Random(1)
    count = sum(SIZES.values())
    sources = [chance.sample(WORDS, chance.randint(2, 6)) for _ in range(count)]
    sources[count - SIZES["test"] // 2 :] = sources[: SIZES["test"] // 2]
    (folder / "text").mkdir()
    for part, size in SIZES.items():
        lines, sources = sources[:size], sources[size:]
        for language, step in (("src", 1), ("tgt", -1)):
            text = "".join(" ".join(words[::step]) + "\n" for words in lines)
            (folder / "text" / f"{part}.{language}").write_text(text, encoding="utf-8")
    prefixes = [value for part in SIZES for value in (f"--{part}pref", f"text/{part}")]
    run(
        folder, "fairseq-preprocess", "--source-lang", "src", "--target-lang", "tgt", "--joined-dictionary", *prefixes,
        "--destdir", "data-bin",
    )  # fmt: skip
    (folder / "data-bin" / "preprocess.log").unlink()


def make(folder: Path, system: str) -> None:
    """Train a system, and record what its checkpoint does."""
    command = f"fairseq-train data-bin {SYSTEMS[system]} {TRAINING} --max-update {UPDATES} --save-dir {system}"
    print(system, losses(run(folder, *command.split()))[:: UPDATES // 4], flush=True)
    (folder / system / "command.txt").write_text(command + "\n", encoding="utf-8")
    plugged = PLUGGED.split() if PLUGGED in command else []
    output = run(
        folder, "fairseq-generate", "data-bin", *plugged, "--path", f"{system}/checkpoint_last.pt", "--cpu", "--beam", 3
    )
    with tempfile.TemporaryDirectory() as elsewhere:
        resumed = shutil.copytree(folder, Path(elsewhere) / "resumed", symlinks=True)
        log = run(resumed, *command.split(), "--max-update", RESUMED_UPDATES)
    expected = {"hypotheses": hypotheses(output), "max_update": RESUMED_UPDATES, "losses": losses(log)}
    (folder / system / "expected.json").write_text(json.dumps(expected, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    link = folder / PLUGIN.name
    link.symlink_to(PLUGIN)
    write_data(folder)
    for system in SYSTEMS:
        make(folder, system)
    link.unlink()


if __name__ == "__main__":
    main()
