"""The connection that docs/connections.md adds works as those that are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from graph_checks import eager_graphs
from tiny_models import SOURCE, TARGET, build_tiny

from fairseq_depthwise.models.sdt.model import CONNECTIONS, SDTTransformerConfig

PAGE = Path(__file__).parents[3] / "docs" / "connections.md"
OPTIONS = {"encoder_connection": "highway", "decoder_connection": "highway", "encoder_block_size": 0}


@pytest.fixture(autouse=True)
def highway(monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert code.count("\n") <= 60
    names: dict[str, type] = {}
    exec(compile(code.replace("from __future__ import annotations\n", ""), str(PAGE), "exec"), names)
    monkeypatch.setitem(CONNECTIONS, "highway", names["HighwayConnection"])
    fields = SDTTransformerConfig.__dataclass_fields__
    for side in ("encoder", "decoder"):
        metadata = fields[f"{side}_connection"].metadata
        monkeypatch.setattr(fields[f"{side}_connection"], "metadata", {**metadata, "one_of": tuple(CONNECTIONS)})


def test_it_decodes_step_by_step_and_as_graphs() -> None:
    model = build_tiny("sdt_transformer", **OPTIONS)
    with torch.no_grad():
        encoded, state = model.encoder(SOURCE[1:2]), {}
        whole = model.decoder(TARGET[1:2], encoded)[0]
        steps = [
            model.decoder(TARGET[1:2, : end + 1], encoded, incremental_state=state)[0] for end in range(TARGET.size(1))
        ]
        torch.testing.assert_close(torch.cat(steps, dim=1), whole, rtol=1e-5, atol=1e-5)
        torch.export.export(eager_graphs([model], in_place=False).encode, (SOURCE,))
