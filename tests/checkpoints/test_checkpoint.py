"""What a checkpoint carries on from its file: options, parameters, provenance, and the same file when it is written."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tiny_checkpoints import tiny_checkpoint

from fairseq_compat import UserError, belonging
from fairseq_depthwise.checkpoints.checkpoint import Checkpoint


def test_what_is_written_is_what_was_read(tmp_path: Path) -> None:
    state, model = tiny_checkpoint(extra={belonging.ENTRY: {"source_lang": "src"}})
    torch.save(state, tmp_path / "model.pt")
    checkpoint = Checkpoint.open(str(tmp_path / "model.pt"), with_digest=True)
    assert checkpoint.digest == belonging.file_digest(str(tmp_path / "model.pt"))
    assert checkpoint.architecture == "sdt_transformer"
    assert checkpoint.updates == 1200
    assert checkpoint.provenance == {"source_lang": "src"}

    checkpoint.with_entries(last_optimizer_state=None).write(tmp_path / "copy.pt")
    copy = Checkpoint.open(str(tmp_path / "copy.pt"))
    assert copy.state["last_optimizer_state"] is None
    assert copy.options == checkpoint.options
    for name, value in model.state_dict().items():
        assert torch.equal(copy.parameters[name], value)


def test_errors_name_the_option(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"--growth-from .*missing\.pt"):
        Checkpoint.open(str(tmp_path / "missing.pt"), "--growth-from")
