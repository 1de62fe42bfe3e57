"""What requests and answers look like, of which FastAPI makes checks and the description at /openapi.json."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, create_model

from fairseq_depthwise.serving.options import ServerOptions, TranslatorOptions

#: What a hypothesis has besides if a request says so and the translator was loaded so: fields of ``Hypothesis``.
DETAILS = {"alignment": ("alignment",), "token_scores": ("tokens", "token_scores")}


def request_models(limits: ServerOptions, nbest: int, loaded: TranslatorOptions) -> tuple[Any, Any]:
    """Return what may be asked of /translate, ``nbest`` translations unless it says how many, and of /explain."""
    config = ConfigDict(extra="forbid", strict=True)
    languages: dict[str, Any] = dict.fromkeys(("source_lang", "target_lang"), (str | None, None))
    details: dict[str, Any] = {name: (bool if getattr(loaded, name) else Literal[False], False) for name in DETAILS}
    line = Annotated[str, Field(max_length=limits.max_chars, pattern=r"^[^\r\n]*$")]
    lines: Any = Annotated[list[line], Field(min_length=1, max_length=limits.max_lines)]
    number, stream = Field(nbest, ge=1, le=loaded.nbest), Field(False, description="answer line by line")
    translate = create_model(
        "TranslateRequest",
        __config__=config,
        lines=(lines, ...),
        nbest=(int, number),
        stream=(bool, stream),
        **languages,
        **details,
    )
    sentence = Annotated[line, Field(pattern=r"\S")]
    rank = (int, Field(0, ge=0, lt=loaded.nbest))
    explain = create_model("ExplainRequest", __config__=config, line=(sentence, ...), rank=rank, **languages)
    return translate, explain


class Hypothesis(BaseModel):
    """A translation; its score is log2 of its probability over a power of its length."""

    text: str
    score: float
    alignment: list[tuple[int, int]] | None = Field(None, description="words of source and translation, from 0")
    tokens: list[str] | None = None
    token_scores: list[float] | None = None


class Translation(Hypothesis):
    """The best translation of a line, with all that were asked for."""

    nbest: list[Hypothesis] | None = None
    cut_off: Literal[True] | None = Field(None, description="it has as many tokens as it may have")


class Translations(BaseModel):
    """Translations in the order of the lines."""

    translations: list[Translation]


class Error(BaseModel):
    """Why there is no answer."""

    error: str
