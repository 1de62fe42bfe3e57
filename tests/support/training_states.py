"""What training and translating leave behind: numbers in logs, translations, checkpoints that are compared."""

from __future__ import annotations

import json
import re
from pathlib import Path

import torch

from fairseq_compat import checkpoints

#: What fairseq's Transformer never reads: a buffer of its positions that it leaves uninitialized, and second copies of
#: an encoder layer's weights, which it makes when it loads a checkpoint.
NEVER_READ = re.compile(r"_float_tensor$|encoder\.layers\.\d+\.(in_proj|out_proj|fc1|fc2)_(weight|bias)$")


def logged(log: str, tag: str = "train_inner") -> list[dict[str, float]]:
    """Return the numbers of the JSON lines of a log that have a tag; fairseq writes some as text."""
    lines = re.findall(rf"\| {tag} \| (\{{.*\}})", log)
    return [{key: float(value) for key, value in json.loads(line).items() if value not in (None, "")} for line in lines]


def hypotheses(output: str, kind: str = "H") -> dict[int, str]:
    """Return the translations that fairseq printed, by number; those of kind ``D`` are detokenized."""
    return {int(number): text for number, text in re.findall(rf"^{kind}-(\d+)\t\S+\t(.*)$", output, re.MULTILINE)}


def bleu4(output: str) -> float:
    """Return the BLEU that fairseq printed."""
    found = re.search(r"BLEU4 = ([\d.]+)", output)
    assert found is not None
    return float(found[1])


def assert_same_state(one: Path, other: Path) -> None:
    """Parameters, Adam's moments, update count and position in the data are the same, bit for bit."""
    states = [checkpoints.load_checkpoint(path) for path in (one, other)]
    for key, tensor in states[0]["model"].items():
        if NEVER_READ.search(key):
            continue
        assert torch.equal(tensor, states[1]["model"][key]), key
    moments = [state["last_optimizer_state"]["state"] for state in states]
    assert moments[0].keys() == moments[1].keys()
    for number, values in moments[0].items():
        for name, value in values.items():
            assert torch.equal(torch.as_tensor(value), torch.as_tensor(moments[1][number][name])), (number, name)
    last = [state["optimizer_history"][-1] for state in states]
    assert last[0]["num_updates"] == last[1]["num_updates"]
    # The best loss so far is left out: a run that is stopped validates at that moment, too.
    schedules = [{**one["lr_scheduler_state"], "best": None} for one in last]
    assert schedules[0] == schedules[1]
    iterators = [state["extra_state"]["train_iterator"] for state in states]
    assert iterators[0] == iterators[1]
