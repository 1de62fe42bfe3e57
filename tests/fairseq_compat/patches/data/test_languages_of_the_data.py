"""One language on the command line says the direction, and what the data does not have is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from fairseq import tasks
from fairseq.data import Dictionary
from fairseq.tasks.translation import TranslationConfig
from omegaconf import DictConfig, OmegaConf

from fairseq_compat import UserError


def data(folder: Path, *pairs: str) -> Path:
    """Dictionaries, and names of binarized text."""
    for pair in pairs:
        for language in pair.split("-"):
            Dictionary().save(str(folder / f"dict.{language}.txt"))
            (folder / f"train.{pair}.{language}.idx").touch()
    return folder


def options(folder: Path, source: str | None, target: str | None) -> DictConfig:
    given = {"_name": "translation", "data": str(folder), "source_lang": source, "target_lang": target}
    return OmegaConf.merge(OmegaConf.structured(TranslationConfig), OmegaConf.create(given))


@pytest.mark.parametrize(
    ("source", "target", "found"),
    [
        (None, "fr", ("en", "fr")),
        ("de", None, ("de", "en")),
        ("fr", "en", ("fr", "en")),
        ("de", "fr", ("de", "fr")),
    ],
)
def test_the_direction_and_its_record(
    source: str | None, target: str | None, found: tuple[str, str], tmp_path: Path
) -> None:
    cfg = options(data(tmp_path, "en-de", "en-fr"), source, target)
    task = tasks.setup_task(cfg)
    assert (task.cfg.source_lang, task.cfg.target_lang) == found
    assert (cfg.source_lang, cfg.target_lang) == found


def test_languages_that_the_data_folder_says_are_recorded(tmp_path: Path) -> None:
    cfg = options(data(tmp_path, "en-de"), None, None)
    tasks.setup_task(cfg)
    assert (cfg.source_lang, cfg.target_lang) == ("en", "de")


@pytest.mark.parametrize(
    ("source", "target", "named"),
    [
        ("xx", None, "--source-lang xx .*{}: de, en, fr"),
        (None, "", "--target-lang '' .*{}: de, en, fr"),
        (None, "en", "--target-lang en .*{}: de-en, fr-en"),
    ],
)
def test_refused(source: str | None, target: str | None, named: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=named.format(tmp_path)):
        tasks.setup_task(options(data(tmp_path, "en-de", "en-fr"), source, target))
