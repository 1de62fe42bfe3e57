"""Patches of options, warnings and logs."""

from __future__ import annotations

import argparse
import dataclasses
import logging
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.logging import progress_bar

from fairseq_compat import UserError
from fairseq_compat.patches import options

# Configuration classes.


@pytest.mark.parametrize("fails", [False, True])
def test_only_classes_of_the_module_itself_become_hashable_and_only_meanwhile(fails: bool) -> None:
    original = dataclasses.dataclass
    around = options.dataclass_defaults(ModuleType("somewhere"))
    next(around)
    ours = dataclasses.dataclass(type("Ours", (), {"__module__": "somewhere"}))
    with_options = dataclasses.dataclass(order=True)(type("Ours", (), {"__module__": "somewhere"}))
    frozen = dataclasses.dataclass(frozen=True)(type("Ours", (), {"__module__": "somewhere"}))
    other = dataclasses.dataclass(type("Other", (), {"__module__": "elsewhere"}))
    with pytest.raises(RuntimeError if fails else StopIteration):
        around.throw(RuntimeError("body")) if fails else next(around)
    assert dataclasses.dataclass is original
    assert ours.__hash__ is with_options.__hash__ is object.__hash__
    assert frozen.__hash__ not in (None, object.__hash__)
    assert other.__hash__ is None


# Numbers.


@pytest.mark.parametrize(
    "words",
    [
        "--max-tokens -1", "--batch-size 0", "--num-workers 99999", "--encoder-layers 1000000000", "--lr 1e999",
        "--lr 0.1,-1", "--update-freq 0", "--label-smoothing inf",
    ],
)  # fmt: skip
def test_numbers_that_never_end_are_refused_on_every_command_line(words: str, stock_data: Path) -> None:
    from fairseq import options as of_fairseq

    given = [str(stock_data), "--arch", "transformer", "--criterion", "label_smoothed_cross_entropy", *words.split()]
    with pytest.raises(UserError, match=rf"^{words.split()[0]} \S+ is out of range"):
        of_fairseq.parse_args_and_arch(of_fairseq.get_training_parser(), given)


# Warnings and logs.

OTHERS = ("'num_workers' argument is unwise", "torch.meshgrid is going to change")


def cause_warnings() -> None:
    """Make the calls that fairseq makes; on new releases of PyTorch some warn no longer."""
    list(torch.utils.data.DataLoader([torch.zeros(1)], pin_memory=True))
    with torch.cuda.amp.autocast(enabled=False):
        pass
    query = torch.zeros(2, 1, 4)
    torch.nn.functional.multi_head_attention_forward(
        query, query, query, 4, 2, torch.zeros(12, 4), torch.zeros(12), None, None, False, 0.0, torch.zeros(4, 4),
        torch.zeros(4), key_padding_mask=torch.zeros(1, 2, dtype=torch.bool), attn_mask=torch.zeros(2, 2),
    )  # fmt: skip
    torch.FloatStorage(1)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    torch.optim.lr_scheduler.StepLR(optimizer, 1).step()
    convert_namespace_to_omegaconf(argparse.Namespace(arch="transformer", task="translation", data="data-bin"))
    for text in OTHERS:
        warnings.warn(text, UserWarning, stacklevel=1)


def test_only_the_known_warnings_are_silenced(patched: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.storage, "_always_warn_typed_storage_removal", True)  # else once in a process
    messages = []
    for is_patched in (False, True):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            if is_patched:
                patched(options.known_warnings, "fairseq")
            cause_warnings()
        messages.append([str(one.message) for one in caught])
    loud, quiet = messages
    # That they are there to be silenced: at least those of all supported releases of PyTorch.
    for text in ("torch.cuda.amp.autocast", "TypedStorage", "lr_scheduler.step", "no longer experimental", *OTHERS):
        assert any(text in message for message in loud), text
    assert quiet == list(OTHERS)


@pytest.fixture
def log_of_its_own() -> Iterator[None]:
    progress_bar.logger.setLevel(logging.INFO)
    yield
    progress_bar.logger.setLevel(logging.NOTSET)
    for handler in progress_bar.logger.handlers[:]:
        progress_bar.logger.removeHandler(handler)
        handler.close()


@pytest.mark.usefixtures("log_of_its_own")
def test_a_log_file_has_each_line_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for epoch, path in enumerate((None, "one", "one", str(tmp_path / "one"), "two")):
        bar = progress_bar.progress_bar([1, 2], log_format="simple", log_file=path, epoch=epoch)
        bar.print({"loss": epoch}, tag="train")
    lines = (tmp_path / "one").read_text().splitlines()
    assert lines == [f"epoch {epoch:03d} | loss {epoch}" for epoch in (1, 2, 3, 4)]  # to all files that are open
    assert len((tmp_path / "two").read_text().splitlines()) == 1


# Ends of commands.


def command(patched: Callable[..., Any], error: BaseException | None) -> Any:
    def cli_main(modify_parser: Any = None) -> str:
        if error is not None:
            raise error
        return f"result, {modify_parser}"

    return patched(options.ends_of_commands, "fairseq_cli.eval_lm", cli_main=cli_main).cli_main


def test_a_command_ends_with_one_sentence(patched: Callable[..., Any], capsys: pytest.CaptureFixture[str]) -> None:
    for error, status, said in (
        (UserError("--path is missing"), 1, "fairseq-eval-lm: error: --path is missing\n"),
        (ZeroDivisionError("division"), 1, "fairseq-eval-lm: ZeroDivisionError: division; the traceback is in "),
        (KeyboardInterrupt(), 130, "interrupted\n"),
    ):
        with pytest.raises(SystemExit) as ended:
            command(patched, error)()
        assert ended.value.code == status
        assert capsys.readouterr().err.startswith(said)
    assert command(patched, None)("given") == "result, given"
