"""Patches of options, warnings and logs."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pytest
from fairseq import models, options
from fairseq.logging import progress_bar

import fairseq_depthwise
from fairseq_compat import UserError
from fairseq_compat.patches.options import import_speech_task_silently, parse_bool

# Warnings and logs.


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


@pytest.mark.parametrize(
    "words",
    [
        "--max-tokens -1", "--batch-size 0", "--num-workers 99999", "--encoder-layers 1000000000", "--lr 1e999",
        "--lr 0.1,-1", "--update-freq 0",
    ],
)  # fmt: skip
def test_numbers_that_never_end_are_refused_on_every_command_line(words: str, stock_data: Path) -> None:
    from fairseq import options as of_fairseq

    given = [str(stock_data), "--arch", "transformer", "--criterion", "label_smoothed_cross_entropy", *words.split()]
    with pytest.raises(UserError, match=rf"^{words.split()[0]} \S+ is out of range"):
        of_fairseq.parse_args_and_arch(of_fairseq.get_training_parser(), given)


def test_a_word_after_an_option_is_no_boolean() -> None:
    assert parse_bool("True")
    with pytest.raises(argparse.ArgumentTypeError, match="data-bin"):
        parse_bool("data-bin")


def test_a_training_needs_an_architecture(stock_data: Path) -> None:
    from fairseq import options as of_fairseq

    with pytest.raises(UserError, match=r"^--arch"):
        of_fairseq.parse_args_and_arch(of_fairseq.get_training_parser(), [str(stock_data)])


def test_architectures_of_the_plugin_are_known_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    fairseq_depthwise.register_with_fairseq()
    known = models.ARCH_MODEL_REGISTRY
    of_plugin = [arch for arch, model in known.items() if model.__module__.startswith("fairseq_depthwise.")]
    assert of_plugin
    without = {arch: model for arch, model in known.items() if arch not in of_plugin}
    monkeypatch.setattr(models, "ARCH_MODEL_REGISTRY", without)
    parser = options.get_training_parser()
    for arch in of_plugin:
        with pytest.raises(UserError, match=f"--arch {arch} .*fairseq-depthwise train"):
            options.parse_args_and_arch(parser, ["data-bin", "--arch", arch])


def test_a_task_that_nobody_uses_asks_for_nothing(caplog: pytest.LogCaptureFixture) -> None:
    task = ModuleType("a_task")
    logger = logging.getLogger(task.__name__)
    with caplog.at_level(logging.INFO, logger=task.__name__):
        with contextmanager(import_speech_task_silently)(task):
            logger.info("Please install tensorboardX")
        logger.info("later")
    assert caplog.messages == ["later"]
