"""The systems of "Multi-Unit Transformers for Neural Machine Translation" and its baselines.

All are in the recipes of NIST Chinese-English, whose corpora are bought, and of WMT14 English-German. WMT18
Chinese-English has those of Table 3 and the two between them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from systems import PRE_NORM, SMOOTHED, Dropout, Published, System, Training, adam, noam, saved_every

PAPER = "multi-unit"
_DE, _ZH, _NIST = "wmt14_en_de", "wmt18_zh_en", "nist_zh_en"
WARM_UP = 16_000

#: The encoder has a table of its own (the parameter counts say so).
_TIED = ("--share-decoder-input-output-embed",)

#: Test sets of NIST in the order of Table 1's columns; the first is the validation set.
NIST_TESTS = ("mt06", "mt02", "mt03", "mt04", "mt08")


def _dropout(probability: float) -> Dropout:
    """Return the dropouts: Appendix A names one; the authors' program has it in feed-forward nets, not in attention."""
    return Dropout(probability, attention=0, activation=probability)


def _selected(*options: str) -> tuple[str, ...]:
    """Return options that make ``checkpoint_best.pt`` the one with the highest BLEU, decoded as the test set is."""
    return (
        *("--eval-bleu", "--eval-bleu-args", '{"beam": 4, "lenpen": 0.6}', *options),
        *("--best-checkpoint-metric", "bleu", "--maximize-best-checkpoint-metric"),
    )


#: English-German and NIST are tokenized; fairseq scores them with one reference, and case.
_TOKENS = _selected("--eval-tokenized-bleu", "--eval-bleu-remove-bpe")
_OPTIONS = {
    _DE: (*_TOKENS, "--valid-subset", "valid1"),  # newstest2013 alone
    _ZH: _selected("--eval-bleu-remove-bpe", "sentencepiece"),
    _NIST: _TOKENS,
}


def _training(width: int, max_tokens: int) -> Training:
    """Return the settings of Section 4 and Appendix A: 4 GPUs, 4096 tokens each; the best checkpoint is scored."""
    return Training(
        batch_tokens=16_384,
        updates=300_000,
        dropout=_dropout(0.2),
        options=(*adam("(0.9, 0.998)", "1e-9", noam(width, WARM_UP), WARM_UP), *SMOOTHED, *_OPTIONS[_DE]),
        save=saved_every(5000, keep=5),
        average=0,
        max_tokens=max_tokens,
    )


def _for_recipes(training: Training) -> dict[str, dict[str, Training]]:
    """Return what WMT18 and NIST have instead: other dropouts, and for NIST two GPUs and half as many updates."""
    common = training.options[: -len(_OPTIONS[_DE])]
    chinese = replace(training, dropout=_dropout(0.1), options=(*common, *_OPTIONS[_ZH]))
    nist = replace(
        training, batch_tokens=8192, updates=150_000, dropout=_dropout(0.4), options=(*common, *_OPTIONS[_NIST])
    )
    return {_ZH: {"training": chinese}, _NIST: {"training": nist}}


def _row(
    german: float | None = None, chinese: float | None = None, nist: tuple[float, ...] = ()
) -> dict[str, tuple[Published, ...]]:
    """Return a row of Tables 1 to 3; of NIST either all test sets, or for Table 4 the first."""
    table, pairs = "Table 1" if len(nist) == len(NIST_TESTS) else "Table 4", zip(NIST_TESTS, nist, strict=False)
    rows = {
        _DE: [Published("tokenized", german, "Table 2", digits=1)] if german else [],
        _ZH: [Published("sacrebleu", chinese, "Table 3", digits=1)] if chinese else [],
        _NIST: [Published("tokenized-lc", score, table, test=test) for test, score in pairs],
    }
    return {recipe: tuple(numbers) for recipe, numbers in rows.items() if numbers}


def _system(
    arch: str, about: str, published: dict[str, tuple[Published, ...]], *options: str, width: int = 512,
    max_tokens: int = 16_384, baseline: str | None = "mute_relative", **more: Any,
) -> System:  # fmt: skip
    training = _training(width, max_tokens)
    fields = {"baseline": baseline, "published": published, "for_recipe": _for_recipes(training), **more}
    return System(arch, training, about, (*_TIED, *options), **fields)


def _units(preset: str, about: str, *nist: float) -> System:
    arch = f"mute_transformer_{preset}" if preset else "mute_transformer"
    scores = {"": (28.8, None), "biased": (29.1, None), "sequential": (29.3, 24.5)}
    german, chinese = scores.get(preset, (None, None))
    return _system(arch, about, _row(german, chinese, nist), max_tokens=8192)


SYSTEMS: dict[str, System] = {
    # Tables 1 to 3.
    "mute_baseline": _system(
        "transformer_wmt_en_de",
        "fairseq's Transformer, base, pre-norm",
        _row(27.4, 23.4, (45.79, 46.34, 45.32, 47.92, 36.16)),
        *PRE_NORM,
        baseline=None,
    ),
    "mute_relative": _system(
        "mute_transformer_wmt_en_de_relative",
        "one unit, relative positions",
        _row(28.2, 23.8, (46.57, 46.64, 45.67, 47.26, 38.03)),
        baseline="mute_baseline",
        differs={"positions": "relative positions are what this row is about"},
    ),
    "mute_big": _system(
        "mute_transformer_wmt_en_de_big",
        "one unit, Big",
        _row(28.6, None, (46.52, 47.23, 46.43, 48.35, 37.31)),
        width=1024,
        max_tokens=8192,
    ),
    "mute": _units("", "4 units", 47.23, 47.38, 46.24, 47.81, 38.48),
    "mute_biased": _units("biased", "4 units, biased inputs", 47.45, 47.40, 47.11, 48.44, 38.31),
    "mute_sequential": _units("sequential", "4 units, biased inputs, learned order", 47.80, 47.72, 46.60, 48.30, 38.70),
    # Table 4: less one thing each; without the order it is mute_biased.
    **{
        f"mute_sequential_no_{part}": _units(f"sequential_no_{part}", f"without {what}", score)
        for part, what, score in (
            ("identity", "the identity unit", 47.01),
            ("swap", "the swapping unit", 47.13),
            ("disorder", "the disorder unit", 47.15),
            ("mask", "the mask unit", 47.36),
            ("bias", "biased inputs", 47.28),
        )
    },
    # Table 6 and Figure 2.
    "mute_shared_attention": _units("shared_attention", "one attention for all units"),
    "mute_shared_ffn": _units("shared_ffn", "one feed-forward net for all units"),
    "mute_1u": _units("1u", "1 unit"),
    **{f"mute_{units}u": _units(f"{units}u", f"{units} units") for units in (2, 3, 5, 6)},
}
