"""``train``: what it says of architectures and their options, in place of a training."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from fairseq.models import ARCH_MODEL_INV_REGISTRY

from fairseq_depthwise import cli


def test_the_list_has_every_preset_and_its_size(printed: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    # Those of one family, since all of them take seconds.
    for family in ("depthwise_lstm_transformer", "mute_transformer"):
        monkeypatch.delitem(ARCH_MODEL_INV_REGISTRY, family)
    rows = [line.split() for line in printed("train", "--list").splitlines()]
    sizes = {row[0]: row[1:] for row in rows if row[0].startswith("sdt_transformer")}
    assert list(sizes) == list(dict.fromkeys(ARCH_MODEL_INV_REGISTRY["sdt_transformer"]))
    layers, *_, millions, _ = sizes["sdt_transformer_wmt_en_de_24l_absolute"]
    assert (layers, millions) == ("24", "117.3")
    assert len(rows) < len(sizes) + 5


def test_the_help_of_an_architecture_has_its_options_and_defaults(printed: Callable[..., str]) -> None:
    text = " ".join(printed("train", "--arch", "depthwise_lstm_transformer_wmt_en_de_12l", "-h").split())
    assert "--depthwise-hidden-dim" in text
    layers = text.partition("--encoder-layers")[2].partition(" --")[0]
    assert "default: 12" in layers
    assert "--max-update" not in text


def test_options_of_fairseq_are_shown_when_all_are_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        cli.main(["train", "--help-all"])
    assert "--max-update" in capsys.readouterr().out
