"""The systems of "Rewiring the Transformer with Depth-Wise LSTMs" and its baselines; the first version's are (v1)."""

from __future__ import annotations

from dataclasses import replace

from systems import PRE_NORM, SMOOTHED, TIED, Published, System, Training, adam, depth, noam

WARM_UP = 8000
#: Every 1,500 updates; fairseq validates when it saves.
_SAVE = ("--save-interval-updates", "1500", "--validate-interval", "100000", "--no-epoch-checkpoints")


def _training(width: int, updates: int, average: int, max_tokens: int) -> Training:
    """Section 3.1; steps and dropout are those of Vaswani et al., whom the paper follows."""
    return Training(
        batch_tokens=25_000,
        updates=updates,
        options=(*adam("(0.9, 0.98)", "1e-9", noam(width, WARM_UP), WARM_UP), *SMOOTHED),
        save=(*_SAVE, "--keep-interval-updates", str(average)),
        average=average,
        max_tokens=max_tokens,
    )


_BASE = _training(512, 100_000, 5, 12_500)
_DEEP = _training(512, 100_000, 5, 6250)
_BIG = _training(1024, 300_000, 20, 6250)

_DROPOUT = ("--dropout", "0.1")
_DE, _FR, _CS = "wmt14_en_de", "wmt14_en_fr", "wmt15_cs_en"


def _row(table: str, **scores: float) -> dict[str, tuple[Published, ...]]:
    """Tokenized BLEU by recipe."""
    return {recipe: (Published("tokenized", score, table),) for recipe, score in scores.items()}


def _vanilla(about: str, *options: str, training: Training = _BASE, **published: float) -> System:
    table = "Table 1" if not options else "Table 6"
    return System(
        "transformer_wmt_en_de", training, about, (*TIED, *_DROPOUT, *options), published=_row(table, **published)
    )


def _depthwise(
    preset: str, about: str, table: str, training: Training = _BASE, baseline: str = "transformer_base", **scores: float
) -> System:
    return System(
        f"depthwise_lstm_transformer_wmt_en_de{preset}",
        training,
        about,
        TIED,
        baseline=baseline,
        published=_row(table, **scores),
    )


SYSTEMS: dict[str, System] = {
    "transformer_base": replace(
        _vanilla("fairseq's Transformer, base"),
        published=_row("Table 1", **{_DE: 27.55, _FR: 39.54}) | _row("Table 6", **{_CS: 28.40}),
    ),
    "transformer_big": System(
        "transformer_wmt_en_de_big",
        _BIG,
        "fairseq's Transformer, Big",
        (*TIED, "--dropout", "0.3"),
        published=_row("Table 1", **{_DE: 28.83, _FR: 41.92}),
        for_recipe={_FR: {"options": (*TIED, "--dropout", "0.1")}},
    ),
    "depthwise_lstm_base": replace(
        _depthwise("", "layers connected by a depth-wise LSTM", "Table 1"),
        published=_row("Table 1", **{_DE: 28.53, _FR: 40.10}) | _row("Table 6", **{_CS: 29.15}),
    ),
    "depthwise_lstm_big": replace(
        _depthwise("_big", "the same, Big", "Table 1", _BIG, "transformer_big", **{_DE: 29.58, _FR: 43.11}),
        for_recipe={_FR: {"arch": "depthwise_lstm_transformer_wmt_en_fr_big"}},
    ),
    # Tables 2 to 5.
    "depthwise_rnn": _depthwise("_rnn", "without gates", "Table 2", **{_DE: 23.24}),
    "depthwise_lstm_1layer": _depthwise("_1layer", "hidden net of 1 layer (Eq. 5)", "Table 3", **{_DE: 27.84}),
    "depthwise_lstm_hidden1536": _depthwise("_hidden1536", "hidden width 1536", "Table 3", **{_DE: 28.20}),
    "depthwise_lstm_concat": _depthwise("_concat", "attention outputs concatenated", "Table 4", **{_DE: 28.26}),
    "depthwise_lstm_two_cells": _depthwise("_two_cells", "two cells a decoder layer", "Table 4", **{_DE: 28.81}),
    "depthwise_lstm_share_all": _depthwise("_share_all", "gates and hidden nets shared", "Table 5", **{_DE: 26.94}),
    "depthwise_lstm_share_none": _depthwise("_share_none", "nothing shared", "Table 5", **{_DE: 28.25}),
    "depthwise_lstm_gelu": _depthwise("_gelu", "GELU for the GLU", "Table 1 (v1)", **{_DE: 28.41}),
    # Table 6.
    "transformer_3l": _vanilla("3 layers", *depth(3, 3), **{_DE: 26.36, _CS: 27.91}),
    **{
        f"transformer_{layers}l": _vanilla(
            f"{layers} layers, pre-norm", *PRE_NORM, *depth(layers, layers), training=_DEEP, **{_DE: german, _CS: czech}
        )
        for layers, german, czech in ((12, 28.12, 29.38), (18, 28.60, 29.61), (24, 29.02, 29.73))
    },
    **{
        f"depthwise_lstm_{layers}l": _depthwise(
            f"_{layers}l",
            f"{layers} layers",
            "Table 6",
            _BASE if layers == 3 else _DEEP,
            f"transformer_{layers}l",
            **{_DE: german, _CS: czech},
        )
        for layers, german, czech in ((3, 27.38, 28.26), (12, 29.26, 29.64), (18, 29.41, 30.27), (24, 29.18, 30.02))
    },
    **{
        f"depthwise_lstm_big_{name}": _depthwise(
            f"_big_{name}", about, "Table 6", _BIG, "transformer_big", **{_DE: german, _CS: czech}
        )
        for name, about, german, czech in (
            ("12l", "Big, 12 layers", 30.69, 30.57),
            ("12l_6l", "Big, 12 and 6 layers, relative positions", 31.12, 31.25),
            ("12l_6l_1layer", "the same with a hidden net of 1 layer", 30.83, 30.96),
        )
    },
}


def many_languages(scheduler: str) -> Training:
    """Section 3.5 follows Zhang et al. (2020): warm-up over 4,000 updates, 500,000 of them, 5 checkpoints averaged."""
    training = _training(512, 500_000, 5, 12_500)
    return replace(training, options=(*adam("(0.9, 0.98)", "1e-9", noam(512, 4000), 4000, scheduler), *SMOOTHED))


def _from_and_to_english(*scores: float) -> dict[str, tuple[Published, ...]]:
    names = ("en-xx bleu94", "en-xx bleu4", "xx-en bleu94", "xx-en bleu4", "en-xx win_ratio", "xx-en win_ratio")
    return {"opus100": tuple(Published(name, score, "Table 7") for name, score in zip(names, scores, strict=False))}


#: Table 7: from English and into it; the win ratio is against the baseline.
OPUS100 = {
    "transformer_base": _from_and_to_english(18.75, 14.73, 27.02, 22.50),
    "depthwise_lstm_base": _from_and_to_english(23.38, 20.47, 28.41, 26.68, 98.94, 79.79),
}
