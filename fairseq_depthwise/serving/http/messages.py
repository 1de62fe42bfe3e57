"""What requests and answers look like: limits, checks, and their description as OpenAPI."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from starlette.exceptions import HTTPException

#: Keys of a request to /translate, and to /explain.
_TRANSLATE_KEYS = ("lines", "nbest", "source_lang", "target_lang", "stream")
_EXPLAIN_KEYS = ("line", "rank", "source_lang", "target_lang")

#: What a hypothesis has besides if a request says so and the translator was loaded so: fields of ``Hypothesis``.
DETAILS = {
    "alignment": ("alignment",),
    "token_scores": ("tokens", "token_scores"),
}

#: Characters of a language's name.
_LONGEST_LANGUAGE = 64


@dataclass(frozen=True)
class Limits:
    """What requests may ask for.

    Attributes:
        max_body: bytes of a request.
        max_lines: lines of a request.
        max_chars: characters of a line.
        queue_lines: lines that may wait, of all requests.
        timeout: seconds that a request may take, or each part of a stream.
        nbest: translations of a line unless the request says how many.
        most_nbest: translations of a line at most.
        details: which of :data:`DETAILS` there are.
    """

    max_body: int = 1 << 20
    max_lines: int = 1000
    max_chars: int = 10_000
    queue_lines: int = 4000
    timeout: float = 60.0
    nbest: int = 1
    most_nbest: int = 1
    details: frozenset[str] = frozenset()


@dataclass(frozen=True)
class TranslateRequest:
    """A checked request to translate; languages are None where it names none."""

    lines: tuple[str, ...]
    nbest: int
    source_lang: str | None
    target_lang: str | None
    stream: bool
    details: tuple[str, ...]


@dataclass(frozen=True)
class ExplainRequest:
    """A checked request to explain the translation of a line that has so many better ones."""

    line: str
    rank: int
    source_lang: str | None
    target_lang: str | None


def translate_request(body: bytes, limits: Limits) -> TranslateRequest:
    """Return a request to translate.

    Raises:
        HTTPException: 400, or 413 where a limit is exceeded; ``detail`` says of what.
    """
    document = _document(body, (*_TRANSLATE_KEYS, *DETAILS))
    lines = document.get("lines")
    if not isinstance(lines, list):
        _refuse(f"lines is {_shown(lines)}; give a list of strings" if "lines" in document else _missing("lines"))
    if not lines:
        _refuse("lines is empty; give 1 line at least")
    if len(lines) > limits.max_lines:
        _refuse(f"lines has {len(lines):,} lines; at most {limits.max_lines:,} are allowed in a request", 413)
    for number, line in enumerate(lines):
        _check_line(f"lines[{number}]", line, limits)
    nbest = document.get("nbest", limits.nbest)
    if type(nbest) is not int or not 1 <= nbest <= limits.most_nbest:
        _refuse(f"nbest is {_shown(nbest)}; give an integer from 1 to {limits.most_nbest}, the beam of this server")
    wanted = tuple(name for name in DETAILS if _boolean(document, name))
    for name in wanted:
        if name not in limits.details:
            _refuse(f"{name} is true, and this server does not compute it; leave {name} out")
    return TranslateRequest(
        tuple(lines), nbest, *_languages(document), stream=_boolean(document, "stream"), details=wanted
    )


def explain_request(body: bytes, limits: Limits) -> ExplainRequest:
    """Return a request to explain; raises as :func:`translate_request`."""
    document = _document(body, _EXPLAIN_KEYS)
    if "line" not in document:
        _refuse(_missing("line"))
    line = document["line"]
    _check_line("line", line, limits)
    if not line.strip():
        _refuse("line is empty; give a sentence")
    rank = document.get("rank", 0)
    if type(rank) is not int or not 0 <= rank < limits.most_nbest:
        _refuse(f"rank is {_shown(rank)}; give an integer from 0, the best, to {limits.most_nbest - 1}")
    return ExplainRequest(line, rank, *_languages(document))


def _document(body: bytes, keys: tuple[str, ...]) -> Mapping[str, Any]:
    if not body.strip():
        _refuse("the body is empty; give a JSON object")
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        _refuse(f"the body is not UTF-8 at byte {error.start:,} ({body[error.start]:#04x}); send UTF-8")
    try:
        document = json.loads(text, parse_constant=_not_json)
    except RecursionError:
        _refuse("the body is nested too deeply; give an object with a list of strings")
    except ValueError as error:
        _refuse(f"the body is not JSON: {error}; give a JSON object")
    if not isinstance(document, dict):
        _refuse(f"the body is {_shown(document)}; give a JSON object")
    for key in document:
        if key not in keys:
            _refuse(f"{_shown(key)} is none of the keys of this request: {', '.join(keys)}")
    return document


def _check_line(name: str, line: object, limits: Limits) -> None:
    if not isinstance(line, str):
        _refuse(f"{name} is {_shown(line)}; give a string")
    if len(line) > limits.max_chars:
        _refuse(f"{name} has {len(line):,} characters; at most {limits.max_chars:,} are allowed in a line", 413)
    if (place := max(line.find("\n"), line.find("\r"))) >= 0:
        _refuse(f"{name} has a line break at character {place:,}; give each line as a string of its own")
    if not line.isascii():
        try:
            line.encode("utf-8")
        except UnicodeEncodeError as error:
            _refuse(f"{name} has half a character at {error.start:,}, {line[error.start]!a}; send whole ones")


def _languages(document: Mapping[str, Any]) -> tuple[str | None, str | None]:
    for name in ("source_lang", "target_lang"):
        language = document.get(name)
        if language is None:
            continue
        if not isinstance(language, str) or not 0 < len(language) <= _LONGEST_LANGUAGE or not language.isprintable():
            _refuse(f"{name} is {_shown(language)}; give the name of a language, as in the model's training")
    return document.get("source_lang"), document.get("target_lang")


def _boolean(document: Mapping[str, Any], name: str) -> bool:
    value = document.get(name, False)
    if not isinstance(value, bool):
        _refuse(f"{name} is {_shown(value)}; give true or false")
    return value


def _missing(name: str) -> str:
    return f"{name} is missing; the body needs it"


def _shown(value: object) -> str:
    """Return a value as JSON has it, in ASCII and not too long."""
    if isinstance(value, list | dict):
        kind = "a list" if isinstance(value, list) else "an object"
        return f"{kind} of {len(value):,}"
    text = json.dumps(value) if not isinstance(value, float) else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _not_json(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number in JSON")


def _refuse(sentence: str, status: int = 400) -> NoReturn:
    raise HTTPException(status, sentence)


def openapi(limits: Limits, version: str) -> dict[str, Any]:
    """Return the description of the server, OpenAPI 3.1."""
    languages = {
        name: {"type": ["string", "null"], "maxLength": _LONGEST_LANGUAGE, "description": "of a model of several"}
        for name in ("source_lang", "target_lang")
    }
    line = {"type": "string", "maxLength": limits.max_chars, "pattern": "^[^\\r\\n]*$"}
    hypothesis = {
        "text": {"type": "string"},
        "score": {
            "type": ["number", "null"],
            "description": "logarithm of the probability to base 2, over length to the power of the length penalty",
        },
        "alignment": {
            "type": "array",
            "items": {"type": "array", "prefixItems": [{"type": "integer"}] * 2, "minItems": 2, "maxItems": 2},
            "description": "with alignment: pairs of a source and a target word of the tokenized texts, counted from 0",
        },
        "tokens": {"type": "array", "items": {"type": "string"}, "description": "with token_scores"},
        "token_scores": {"type": "array", "items": {"type": "number"}},
    }
    schemas = {
        "TranslateRequest": _object(
            {
                "lines": {"type": "array", "items": line, "minItems": 1, "maxItems": limits.max_lines},
                "nbest": {"type": "integer", "minimum": 1, "maximum": limits.most_nbest, "default": limits.nbest},
                **languages,
                "stream": {"type": "boolean", "default": False, "description": "answer line by line"},
                **{
                    name: {"type": "boolean", "default": False, **({} if name in limits.details else {"const": False})}
                    for name in DETAILS
                },
            },
            "lines",
            additionalProperties=False,
        ),
        "Hypothesis": _object(hypothesis, "text", "score"),
        "Translation": _object(
            {
                **hypothesis,
                "nbest": {"type": "array", "items": _reference("Hypothesis"), "description": "with nbest above 1"},
                "cut_off": {"const": True, "description": "the translation has as many tokens as it may have"},
            },
            "text",
            "score",
        ),
        "Translations": _object(
            {"translations": {"type": "array", "items": _reference("Translation")}}, "translations"
        ),
        "ExplainRequest": _object(
            {
                "line": {**line, "minLength": 1},
                "rank": {"type": "integer", "minimum": 0, "maximum": limits.most_nbest - 1, "default": 0},
                **languages,
            },
            "line",
            additionalProperties=False,
        ),
        "Explanation": _object(
            {
                "source": {"type": "array", "items": {"type": "string"}, "description": "S tokens"},
                "target": {"type": "array", "items": {"type": "string"}, "description": "T tokens"},
                "attention": {
                    "type": "array",
                    "items": {"type": "array", "items": {"type": "number"}},
                    "description": "T x S, of the last decoder layer, mean of its heads",
                },
                "text": {"type": "string"},
                "models": {"type": "integer", "description": "of the ensemble; the first one is explained"},
                "gates": {
                    "type": "object",
                    "additionalProperties": {
                        "type": "array",
                        "items": _object(
                            {
                                "layer": {"type": "string"},
                                **{name: {"type": "number"} for name in ("input", "forget", "output")},
                            },
                            "layer", "input", "forget", "output",
                        ),
                    },
                    "description": "of a depth-wise LSTM: mean gates of each side's layers over the sentence",
                },
                "units": {
                    "type": "array",
                    "items": {"type": "array", "items": {"type": "number"}},
                    "description": "of a multi-unit model: weights of the units of each encoder layer",
                },
            },
            "source", "target", "attention", "text", "models",
        ),
        "Health": _object(
            {
                "status": {"enum": ["ok", "failed"]},
                "source_lang": {"type": "string"},
                "target_lang": {"type": "string"},
                "nbest": {"type": "integer"},
                "most_nbest": {"type": "integer"},
                "waiting_lines": {"type": "integer"},
            },
            "status", "source_lang", "target_lang", "nbest", "most_nbest", "waiting_lines",
        ),
        "Error": _object({"error": {"type": "string"}}, "error"),
    }  # fmt: skip
    refused = {
        "400": "the request or its Host header is wrong; the sentence names field, value, and what would be right",
        "408": "the body did not arrive in time",
        "413": "the body, the list of lines or a line is too long",
        "415": "the body's Content-Type is not application/json",
        "500": "the search failed",
        "503": "too many lines are waiting; try again after Retry-After seconds",
        "504": f"it took longer than {limits.timeout:g} seconds",
    }
    errors: dict[str, Any] = {
        status: {"description": text, **_json(_reference("Error"))} for status, text in refused.items()
    }
    errors["503"]["headers"] = {"Retry-After": {"schema": {"type": "integer"}}}
    translated = {"description": "translations in the order of the lines", **_json(_reference("Translations"))}
    translated["content"]["application/x-ndjson"] = {
        "schema": _reference("Translation"),
        "x-description": "with stream: a JSON object in each line, in order; an Error ends a stream that fails",
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "fairseq-depthwise serve", "version": version},
        "paths": {
            "/translate": {
                "post": {
                    "operationId": "translate",
                    "summary": "Translate lines",
                    "requestBody": {"required": True, **_json(_reference("TranslateRequest"))},
                    "responses": {"200": translated, **errors},
                }
            },
            "/explain": {
                "post": {
                    "operationId": "explain",
                    "summary": "Show what the model attends to in a translation",
                    "requestBody": {"required": True, **_json(_reference("ExplainRequest"))},
                    "responses": {
                        "200": {"description": "attention, gates and units", **_json(_reference("Explanation"))},
                        **errors,
                        "501": {"description": "the model cannot be looked into", **_json(_reference("Error"))},
                    },
                }
            },
            "/health": {
                "get": {
                    "operationId": "health",
                    "summary": "Whether the server can translate",
                    "responses": {
                        "200": {"description": "it can", **_json(_reference("Health"))},
                        "503": {"description": "it cannot any more", **_json(_reference("Health"))},
                    },
                }
            },
            "/metrics": {
                "get": {
                    "operationId": "metrics",
                    "summary": "Counters in Prometheus' text format",
                    "responses": {
                        "200": {"description": "metrics", "content": {"text/plain": {"schema": {"type": "string"}}}}
                    },
                }
            },
        },
        "components": {"schemas": schemas},
    }


def _object(properties: Mapping[str, Any], *required: str, **others: Any) -> dict[str, Any]:
    return {"type": "object", "properties": dict(properties), "required": list(required), **others}


def _reference(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _json(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"content": {"application/json": {"schema": schema}}}
