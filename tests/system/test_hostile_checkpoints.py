"""No code runs from a checkpoint, whichever command reads it, and whichever of its recorded options is hostile."""

from __future__ import annotations

import copy
import importlib
import io
import logging
import os
import shutil
import sys
import traceback
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hostile_values import HOSTILE, hostile

from fairseq_compat import UserError, checkpoints
from fairseq_depthwise import cli

RunHere = Callable[[Sequence[object]], tuple[int, str]]

STOCK, OURS, UNITS = "transformer", "depthwise_lstm_transformer", "mute_transformer"
TASK = ("--task", "translation")
GROWTH = ("--task", "translation_layer_growth", "--growth-stages", "2:1u,4:1u", "--growth-from")
TRAINING = (
    "--cpu", "--num-workers", "0", "--optimizer", "adam", "--lr", "0.005", "--max-tokens", "500", "--max-update", "1",
)  # fmt: skip

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def run_here(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> RunHere:
    """``run_here(words)``: a command in this process, its status and what it wrote to stderr.

    What fairseq has no sentence for is raised there as here.
    """

    def run(words: Sequence[object]) -> tuple[int, str]:
        name, *arguments = (str(word) for word in words)
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(logging, "raiseExceptions", False)  # of handlers for the stderr of another test
        monkeypatch.setattr(sys, "argv", [name, *arguments])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"w1 w2\n")))
        capsys.readouterr()
        try:
            if name == "fairseq-depthwise":
                status = cli.main(arguments)
            else:
                sys.argv += ["--num-workers", "0"]  # a process that loads data would outlive an error here
                module = importlib.import_module(name.replace("fairseq-", "fairseq_cli.").replace("-", "_"))
                status = module.cli_main() or 0
        except SystemExit as end:
            status = end.code
        except Exception:
            return 2, traceback.format_exc()
        return status, capsys.readouterr().err

    return run


class Trap:
    """Hostile values, each of which would make a file of its own in one folder, and a plugin that would, too."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.plugin, self.values = folder / "it-ran", folder / "hostile_plugin", 0
        self.folder.mkdir()
        self.plugin.mkdir()
        (self.plugin / "__init__.py").write_text(f"open({str(self.folder / 'plugin')!r}, 'w')\n", encoding="utf-8")

    def value(self) -> str:
        self.values += 1
        return hostile([*HOSTILE][self.values % len(HOSTILE)], self.folder / f"value{self.values}")


#: Options of text that a stock model is built with, and that nothing reads as a literal in a plain translation model.
HARMLESS_PLACES = {
    "task": ("eval_bleu_args", "eval_bleu_detok_args"),
    "optimizer": ("adam_betas",),
    "checkpoint": ("optimizer_overrides", "restore_file", "save_dir"),
    "common_eval": ("model_overrides", "path"),
    "common": ("user_dir", "tensorboard_logdir", "wandb_project", "log_file"),
    "generation": ("lm_path", "replace_unk"),
    "dataset": ("valid_subset", "gen_subset"),
    "criterion": ("wer_args",),
    "lr_scheduler": ("update2lr",),
}


def hostile_checkpoint(source: Path, path: Path, trap: Trap, place: str) -> Path:
    """A copy of a checkpoint with hostile values in one place, or in all that do not keep a model from being built."""
    state = checkpoints.load(source)
    cfg: dict[str, Any] = state["cfg"]
    if place == "model":
        cfg["model"] = copy.deepcopy(vars(cfg["model"]) if isinstance(cfg["model"], Namespace) else cfg["model"])
        for name in ("adaptive_softmax_cutoff", "encoder_layers_to_keep", "decoder_attention", "encoder_layers"):
            cfg["model"][name] = trap.value()
    elif place == "args":
        flat = {name: value for part in cfg.values() if isinstance(part, dict) for name, value in part.items()}
        model = vars(cfg["model"]) if isinstance(cfg["model"], Namespace) else cfg["model"]
        state["args"] = Namespace(**{**flat, **model, "arch": model["_name"], "task": "translation"})
        for name in ("adaptive_softmax_cutoff", "adam_betas", "lr", "user_dir", "betas", "tokenizer", "bpe"):
            setattr(state["args"], name, trap.value())
        state["cfg"] = None
    else:
        for part, names in HARMLESS_PLACES.items():
            if isinstance(cfg.get(part), dict):
                cfg[part].update({name: trap.value() for name in names})
                cfg[part]["_target_"] = "os.system"
        cfg["common"]["user_dir"] = str(trap.plugin)
        cfg["task"]["user_dir"] = str(trap.plugin)
    torch.save(state, path)
    return path


#: Each command that reads a checkpoint: its words, some of which ``fill`` replaces, and the model that it needs.
COMMANDS: dict[str, tuple[str, str]] = {
    "fairseq-generate": ("fairseq-generate DATA --path CHECKPOINT --cpu --beam 2 --max-len-b 8", STOCK),
    "fairseq-interactive": ("fairseq-interactive DATA --path CHECKPOINT --cpu --max-len-b 8", STOCK),
    "fairseq-validate": ("fairseq-validate DATA --path CHECKPOINT --cpu --max-tokens 500 TASK", STOCK),
    "fairseq-eval-lm": ("fairseq-eval-lm DATA --path CHECKPOINT --cpu TASK", STOCK),
    "restore": ("fairseq-depthwise train DATA TRAINING --restore-file CHECKPOINT", STOCK),
    "finetune": ("fairseq-depthwise train DATA TRAINING --finetune-from-model CHECKPOINT", STOCK),
    "growth": ("fairseq-depthwise train DATA TRAINING GROWTH CHECKPOINT", OURS),
    "generate": ("fairseq-depthwise generate DATA --path CHECKPOINT --cpu --beam 2 --max-len-b 8", OURS),
    "interactive": ("fairseq-depthwise interactive DATA --path CHECKPOINT --cpu", OURS),
    "translate": ("fairseq-depthwise translate CHECKPOINT --data DATA --cpu", STOCK),
    "inspect": ("fairseq-depthwise inspect CHECKPOINT", STOCK),
    "similarity": ("fairseq-depthwise similarity CHECKPOINT --data DATA", STOCK),
    "probe": ("fairseq-depthwise probe CHECKPOINT --data DATA --output OUT --cpu", STOCK),
    "export": ("fairseq-depthwise export CHECKPOINT OUT --data DATA", OURS),
    "gates": ("fairseq-depthwise gates CHECKPOINT --data DATA", OURS),
    "units": ("fairseq-depthwise units CHECKPOINT --data DATA", UNITS),
    "average": ("fairseq-depthwise average CHECKPOINT --output OUT", STOCK),
    "grow": ("fairseq-depthwise grow CHECKPOINT OUT --layers 4", OURS),
}

#: Those that build a model from the recorded options, and so read a hostile one as a literal, which it is not.
BUILDS = {
    "fairseq-generate", "fairseq-eval-lm", "fairseq-interactive", "fairseq-validate", "translate", "similarity",
    "probe",
}  # fmt: skip

#: Where the hostile values are, if not both elsewhere and in the model: some commands build none from what is recorded,
#: and with others elsewhere takes long, as nothing is wrong with the model.
PLACES = {
    **dict.fromkeys(("restore", "finetune", "growth", "average"), ("elsewhere",)),
    **dict.fromkeys(("fairseq-generate", "translate"), ("elsewhere", "model", "args")),
    **dict.fromkeys(("probe", "export", "fairseq-eval-lm"), ("model",)),
}


@pytest.fixture
def fill(
    copy_reverse_data: Path, tiny_model_options: Callable[[str], list[str]], tmp_path: Path
) -> Callable[..., list[object]]:
    """``fill(words, arch, checkpoint)``: the command with what its words in capitals stand for."""

    def call(words: str, arch: str, checkpoint: Path) -> list[object]:
        named: dict[str, Sequence[object]] = {
            "CHECKPOINT": [checkpoint],
            "DATA": [copy_reverse_data],
            "TRAINING": [*tiny_model_options(arch), *TRAINING, "--save-dir", tmp_path / "new"],
            "OUT": [tmp_path / f"out-{checkpoint.stem}"],
            "TASK": TASK,
            "GROWTH": GROWTH,
        }
        return [part for word in words.split() for part in named.get(word, [word])]

    return call


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_runs_code_from_a_checkpoint(
    command: str, trained: Callable[[str], Path], fill: Callable[..., list[object]], run_here: RunHere, tmp_path: Path
) -> None:
    trap = Trap(tmp_path)
    words, arch = COMMANDS[command]
    for place in PLACES.get(command, ("elsewhere", "model")):
        file = hostile_checkpoint(trained(arch), tmp_path / f"{place}.pt", trap, place)
        status, stderr = run_here(fill(words, arch, file))
        assert os.listdir(trap.folder) == []
        assert "usage:" not in stderr
        assert "Traceback" not in stderr, stderr[-1500:]
        if place == "model" and command in BUILDS:
            assert status == 1
            assert "is not a literal" in stderr
    assert trap.values >= 4


def test_options_are_recorded_once(trained: Callable[[str], Path], tmp_path: Path) -> None:
    """fairseq takes those in ``args``, while others are compared with the record."""
    state = checkpoints.load(trained(STOCK))
    torch.save({**state, "args": Namespace()}, tmp_path / "both.pt")
    with pytest.raises(UserError, match="both"):
        checkpoints.load_checkpoint(tmp_path / "both.pt")


def test_python_interfaces_run_no_code_either(
    trained: Callable[[str], Path], copy_reverse_data: Path, tmp_path: Path
) -> None:
    from fairseq.models.transformer import TransformerModel

    from fairseq_depthwise.translation.translator import LoadedTranslator

    trap = Trap(tmp_path)
    for place in ("model", "args"):
        file = hostile_checkpoint(trained(STOCK), tmp_path / f"{place}.pt", trap, place)
        error = UserError if place == "model" else Exception  # hydra's own, of the flat options
        with pytest.raises(error):
            TransformerModel.from_pretrained(str(tmp_path), file.name, str(copy_reverse_data))
        with pytest.raises(error):
            LoadedTranslator(str(file), data=str(copy_reverse_data))
        assert os.listdir(trap.folder) == []


@pytest.mark.parametrize("option", ["encoder_ffn_embed_dim", "max_source_positions"])
def test_no_model_is_built_that_is_far_larger_than_its_checkpoint(
    option: str, trained: Callable[[str], Path], fill: Callable[..., list[object]], run_here: RunHere, tmp_path: Path
) -> None:
    state = checkpoints.load(trained(STOCK))
    model = state["cfg"]["model"]
    (vars(model) if isinstance(model, Namespace) else model)[option] = 2**24
    torch.save(state, tmp_path / "larger.pt")
    for command in ("generate", "translate"):
        status, stderr = run_here(fill(COMMANDS[command][0], STOCK, tmp_path / "larger.pt"))
        assert status == 1, stderr
        assert "larger.pt" in stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("arch", "part", "option", "value"),
    [
        (STOCK, "model", "encoder_attention_heads", 1), (OURS, "model", "depthwise_sharing", "all"),
        (OURS, "task", "max_source_positions", 3),
    ],
)  # fmt: skip
def test_options_are_those_that_are_recorded(
    arch: str, part: str, option: str, value: object, trained: Callable[[str], Path],
    fill: Callable[..., list[object]], run_here: RunHere, tmp_path: Path,
) -> None:  # fmt: skip
    state = checkpoints.load(trained(arch))
    options = state["cfg"][part]
    (vars(options) if isinstance(options, Namespace) else options)[option] = value
    torch.save(state, tmp_path / "altered.pt")
    for command in ("generate", "translate", "average"):
        status, stderr = run_here(fill(COMMANDS[command][0], arch, tmp_path / "altered.pt"))
        assert status == 1
        assert f"--{option.replace('_', '-')}" in stderr.splitlines()[-1]


CODES = {"_name": "subword_nmt", "bpe_codes": "https://dl.fbaipublicfiles.com/fairseq/codes"}


@pytest.mark.parametrize("bpe", [{"_name": "gpt2"}, Namespace(_name="bytes", bpe="gpt2"), CODES], ids=str)
def test_no_file_is_fetched_that_a_checkpoint_names(
    bpe: Any, trained: Callable[[str], Path], copy_reverse_data: Path, tmp_path: Path
) -> None:
    from fairseq.models.transformer import TransformerModel

    state = checkpoints.load(trained(STOCK))
    state["cfg"]["bpe"] = bpe
    torch.save(state, tmp_path / "gpt2.pt")
    with pytest.raises(UserError, match="whose files would be downloaded"):
        TransformerModel.from_pretrained(str(tmp_path), "gpt2.pt", str(copy_reverse_data))


@pytest.mark.parametrize("command", ["translate", "fairseq-generate", "inspect"])
def test_pipes_are_refused(
    command: str, trained: Callable[[str], Path], copy_reverse_data: Path, fill: Callable[..., list[object]],
    run_here: RunHere, tmp_path: Path,
) -> None:  # fmt: skip
    """Nobody would ever write into them."""
    shutil.copytree(copy_reverse_data, data := tmp_path / "piped")
    (data / "dict.src.txt").unlink()
    for pipe in (data / "dict.src.txt", tmp_path / "pipe.pt"):
        os.mkfifo(pipe)
    words, arch = COMMANDS[command]
    for model in [tmp_path / "pipe.pt", *([trained(arch)] if "DATA" in words else [])]:
        status, stderr = run_here([data if word == copy_reverse_data else word for word in fill(words, arch, model)])
        assert status == 1
        assert "pipe" in stderr.splitlines()[-1]
