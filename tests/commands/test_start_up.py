"""What a command does without PyTorch and fairseq, which take seconds to import: help, errors, scores."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from fairseq_depthwise import cli

#: Command lines -> exit statuses. DATA is a folder with a text and a log; "none" and "none.pt" do not exist.
LIGHT = {
    "--help": 0,
    "--version": 0,
    "--no-such-option": 2,
    **{f"{name} --help": 0 for name in cli.COMMANDS},
    "score --ref DATA/text DATA/text": 0,
    "compare --ref DATA/text DATA/text DATA/text": 0,
    "report DATA/train.log --json": 0,
    "report none --json": 1,
    "inspect --no-such-option": 2,
    "params --no-such-option": 1,
    "translate none.pt": 1,
    "translate none.pt --sampling --constraints": 1,
    "serve none.pt": 1,
    "export none.pt out": 1,
    "average none.pt --output out.pt": 1,
    "inspect none.pt": 1,
    "grow none.pt out.pt --layers 4": 1,
    "units none.pt --data DATA": 1,
    "gates none.pt --data DATA": 1,
    "similarity none.pt --data DATA": 1,
    "probe none.pt --data DATA --output out": 1,
}

#: Runs command lines one after the other; prints status and imported packages of each.
PROGRAM = """
import json, sys
from fairseq_depthwise import cli

results = []
for words in json.loads(sys.argv[1]):
    try:
        status = cli.main(words)
    except SystemExit as ended:
        status = ended.code
    results.append([status, sorted({"torch", "fairseq"}.intersection(sys.modules))])
print(json.dumps(results))
"""


def test_help_errors_and_scores_need_neither_pytorch_nor_fairseq(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("a dog runs over the hill\n")
    (tmp_path / "train.log").write_text('{"epoch": 1, "train_loss": "3.5", "train_num_updates": "10"}\n')
    lines = [words.replace("DATA", str(tmp_path)).split() for words in LIGHT]
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(lines)], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    results = json.loads(result.stdout.splitlines()[-1])
    assert dict(zip(LIGHT, results, strict=True)) == {words: [status, []] for words, status in LIGHT.items()}
