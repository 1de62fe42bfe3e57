"""The section of ``large_models.py`` on the page, and what it measures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

DEVICES = ("cpu", "cuda")

#: Name -> fairseq's architecture and its options.
MODELS: dict[str, tuple[str, ...]] = {
    "base": ("sdt_transformer", "--encoder-layers", "6"),
    "48-layers": ("sdt_transformer_wmt_en_de_48l",),
    "big": ("depthwise_lstm_transformer_wmt_en_de_big",),
}

#: Name -> precision and fairseq's options; each has what the one before it has, and one thing more.
MEASURES: dict[str, tuple[str, ...]] = {
    "fp32": ("fp32",),
    "bf16": ("bf16",),
    "recomputed": ("bf16", "--checkpoint-activations"),
    "fused": ("bf16", "--checkpoint-activations", "--optimizer", "fused_adam"),
}

#: What a measure adds, as typed.
_TYPED = {
    "fp32": "",
    "bf16": "`--bf16`",
    "recomputed": "+ `--checkpoint-activations`",
    "fused": "+ `--optimizer fused_adam`",
}


def page(cases: Sequence[Mapping[str, Any]]) -> str:
    """The section, from all cases of the record."""
    lines = [
        "# Large models",
        "",
        "Made by `benchmarks/large_models.py --record docs/records/large_models.json --output docs/benchmarks.md`:",
        "each row is a process of its own, in which fairseq's Trainer makes two updates with the longest of three",
        "batches of random sentences like those of the first tables. The peak is that of both updates, from before",
        "the model is built; the seconds are those of the second one, a single measurement, and left out where the",
        "machine had other work. Dropout 0.1, tied embeddings, a dictionary of 32,768, fairseq's",
        "`label_smoothed_cross_entropy`.",
    ]
    for device in DEVICES:
        chosen = [case for case in cases if case["device"] == device]
        if chosen:
            lines += ["", *_table(device, chosen)]
    return "\n".join([*lines, ""])


def _table(device: str, cases: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield from (
        f"## On {'a GPU' if device == 'cuda' else 'a CPU'}",
        "",
        "| model | parameters | training with | tokens | peak GiB | of fp32 | s an update |",
        "|---|---|---|---|---|---|---|",
    )
    order = {name: number for number, name in enumerate((*MODELS, *MEASURES))}
    ordered = sorted(cases, key=lambda case: (order[case["model"]], order[case["measure"]]))
    for model, group in groupby(ordered, key=lambda case: str(case["model"])):
        rows = list(group)
        plain = next((one["peak"] for one in rows if one["measure"] == "fp32" and "peak" in one), None)
        for one in rows:
            yield _row(model, one, plain)
    for skipped in (one for one in ordered if "skipped" in one):
        yield from ("", f"{skipped['model']}, {skipped['measure']} was skipped: {skipped['skipped']}.")
    yield ""
    for model in MODELS:
        yield f"- {model}: `{' '.join(MODELS[model])}`."
    for setup in dict.fromkeys(_setup(case["setup"]) for case in ordered):
        yield f"- {setup}"


def _row(model: str, case: Mapping[str, Any], plain: int | None) -> str:
    typed = _TYPED[case["measure"]] or "float32"
    if "skipped" in case:
        return f"| {model} | | {typed} | | skipped | | |"
    share = f"{case['peak'] / plain:.2f}" if plain else "-"
    seconds = f"{case['seconds']:.2f}" if case["seconds"] else "-"
    return (
        f"| {model} | {case['parameters']:,} | {typed} | {case['tokens']} | {case['peak'] / 2**30:.2f} | {share} "
        f"| {seconds} |"
    )


def _setup(setup: Mapping[str, Any]) -> str:
    variables = f"; {setup['variables']}" if setup["variables"] else ""
    return (
        f"Machine: {setup['machine']}; threads of PyTorch: {setup['threads']}{variables}. "
        f"Versions: {setup['versions']}."
    )
