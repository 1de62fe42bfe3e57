"""Options in programs: what the command line refuses is refused there, too, before it can make other translations."""

from __future__ import annotations

import math
from typing import Any

import pytest

from fairseq_compat import UserError
from fairseq_depthwise.serving.server_options import ServerOptions
from fairseq_depthwise.translation.translation_options import BeamOptions, ExportOptions, TranslatorOptions


@pytest.mark.parametrize(
    ("kind", "given", "flag"),
    [
        (BeamOptions, {"beam": 0}, "--beam '0'"),
        (BeamOptions, {"beam": 2.5}, "--beam '2.5'"),
        (BeamOptions, {"beam": "2"}, "--beam '2'"),
        (BeamOptions, {"sampling": 1}, "--sampling 1"),
        (BeamOptions, {"length_penalty": math.nan}, "--lenpen 'nan'"),
        (BeamOptions, {"length_penalty": -1000}, "--lenpen '-1000'"),
        (BeamOptions, {"sampling": True, "sampling_topk": -1}, "--sampling-topk '-1'"),
        (BeamOptions, {"constraints": "some"}, "--constraints 'some'"),
        (TranslatorOptions, {"nbest": 0}, "--nbest '0'"),
        (TranslatorOptions, {"max_line_tokens": -3}, "--max-line-tokens '-3'"),
        (TranslatorOptions, {"compile": "yes"}, "--compile 'yes'"),
        (TranslatorOptions, {"token_scores": "no"}, "--token-scores 'no'"),
        (TranslatorOptions, {"precision": "half"}, "--precision 'half'"),
        (TranslatorOptions, {"alignment": "all"}, "--print-alignment 'all'"),
        (ServerOptions, {"port": 70_000}, "--port '70000'"),
        (ExportOptions, {"format": "tflite"}, "--format 'tflite'"),
    ],
)
def test_values_that_the_command_line_refuses(kind: Any, given: dict[str, Any], flag: str) -> None:
    with pytest.raises(UserError, match=flag):
        kind(**given)


def test_values_that_it_takes() -> None:
    search = BeamOptions(beam=5, length_penalty=1, sampling=True, sampling_topk=3)
    options = TranslatorOptions(beam=search, nbest=5, max_tokens=None, batch_size=8, precision="bf16", alignment="soft")
    assert (options.beam.length_penalty, options.batch_size) == (1, 8)
