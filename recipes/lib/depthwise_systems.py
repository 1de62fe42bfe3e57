"""The systems of "Rewiring the Transformer with Depth-Wise LSTMs" and its baselines; the first version's are (v1).

Attention and activation dropout are not in the text: they are those of the authors' program, 0.1 for all models, and of
the settings that the first version refers to.
"""

from __future__ import annotations

from dataclasses import replace

from systems import PRE_NORM, SMOOTHED, TIED, Dropout, Published, System, Training, adam, depth, noam, saved_every

PAPER = "depth-wise LSTM"
WARM_UP = 8000
_DE, _FR, _CS = "wmt14_en_de", "wmt14_en_fr", "wmt15_cs_en"

#: Everywhere, but for Big models in English-German.
_DROPOUT = Dropout(0.1, attention=0.1, activation=0.1)
_BIG_DROPOUT = replace(_DROPOUT, residual=0.3)


def _training(width: int, updates: int, average: int, max_tokens: int, dropout: Dropout = _DROPOUT) -> Training:
    """Return the settings of Section 3.1; steps and dropout are those of Vaswani et al., whom the paper follows."""
    return Training(
        batch_tokens=25_000,
        updates=updates,
        dropout=dropout,
        options=(*adam("(0.9, 0.98)", "1e-9", noam(width, WARM_UP), WARM_UP), *SMOOTHED),
        save=saved_every(1500, keep=average),
        average=average,
        max_tokens=max_tokens,
        target_tokens=True,
    )


_BASE = _training(512, 100_000, 5, 12_500)
_DEEP = _training(512, 100_000, 5, 6250)
_BIG = _training(1024, 300_000, 20, 6250, _BIG_DROPOUT)

#: "The experiment settings of Li et al. (2022a)" (ODE Transformer), by the script of their program for English-German
#: Big models with 12 encoder layers: 8 GPUs x 4096 tokens x 2, and 40 epochs, of some 2,380 updates with that corpus.
_ODE = replace(
    _BIG,
    batch_tokens=65_536,
    updates=95_000,
    options=(*adam("(0.9, 0.997)", "1e-8", 0.002, 16_000), *SMOOTHED),
    target_tokens=False,
)


_STOCK, _OURS = "transformer_wmt_en_de", "depthwise_lstm_transformer_wmt_en_de"


def _row(
    table: str, german: float | None = None, french: float | None = None, czech: float | None = None
) -> dict[str, tuple[Published, ...]]:
    """Return tokenized BLEU by recipe."""
    scores = {_DE: german, _FR: french, _CS: czech}
    return {recipe: (Published("tokenized", score, table),) for recipe, score in scores.items() if score}


def _both(
    row: dict[str, tuple[Published, ...]], other: dict[str, tuple[Published, ...]]
) -> dict[str, tuple[Published, ...]]:
    """Return the numbers of two rows for one system, by recipe."""
    recipes = dict.fromkeys((*row, *other))
    return {recipe: (*row.get(recipe, ()), *other.get(recipe, ())) for recipe in recipes}


def _system(
    arch: str, about: str, published: dict[str, tuple[Published, ...]], baseline: str | None, *options: str,
    training: Training = _BASE,
) -> System:  # fmt: skip
    return System(arch, training, about, (*TIED, *options), baseline=baseline, published=published)


def _big(
    arch: str, about: str, published: dict[str, tuple[Published, ...]], baseline: str | None, *options: str,
    training: Training = _BIG, french: dict[str, str] | None = None,
) -> System:  # fmt: skip
    """Return a Big model: outside of English-German with the dropout of all others, and in French with other fields."""
    plain = {"training": replace(training, dropout=_DROPOUT)}
    system = _system(arch, about, published, baseline, *options, training=training)
    return replace(system, for_recipe={_FR: {**plain, **(french or {})}, _CS: plain})


SYSTEMS: dict[str, System] = {
    "transformer_base": _system(
        _STOCK, "fairseq's Transformer, base", _row("Table 1", 27.55, 39.54) | _row("Table 6", czech=28.40), None
    ),
    "transformer_big": _big(
        f"{_STOCK}_big", "fairseq's Transformer, Big",
        _both(_row("Table 1", 28.83, 41.92), _row("v1, Table 1", 28.63, 41.52)), None,
    ),
    "depthwise_lstm_base": _system(
        _OURS, "layers connected by a depth-wise LSTM, a set of gates for each stack",
        _row("Table 1", 28.53, 40.10) | _row("Table 6", czech=29.15), "transformer_base",
    ),
    "depthwise_lstm_big": _big(
        f"{_OURS}_big", "the same, Big", _row("Table 1", 29.58, 43.11), "transformer_big",
        french={"arch": "depthwise_lstm_transformer_wmt_en_fr_big"},
    ),
    "depthwise_lstm_open": _system(
        "depthwise_lstm_transformer_open",
        "open, quiet gates and a direct way from attention to the state; not the paper's", {}, "depthwise_lstm_base",
    ),
    # Tables 2, 3 and 5: by their parameter counts, both stacks share one set of gates.
    "depthwise_lstm_6l": _system(
        f"{_OURS}_6l", "one set of gates for both stacks, 70.25 M", _row("Tables 2, 3, 5", 28.53), "transformer_base"
    ),
    **{
        f"depthwise_{name}": _system(f"{_OURS}_{preset}", about, _row(table, score), "depthwise_lstm_6l")
        for name, preset, about, table, score in (
            ("rnn", "rnn", "without gates", "Table 2", 23.24),
            ("lstm_1layer", "1layer", "hidden net of 1 layer (Eq. 5)", "Table 3", 27.84),
            ("lstm_hidden1536", "hidden1536", "hidden width 1536", "Table 3", 28.20),
            ("lstm_share_all", "share_all", "gates and hidden nets shared", "Table 5", 26.94),
            ("lstm_share_none", "share_none", "nothing shared", "Table 5", 28.25),
        )
    },
    # Table 4: gates that read what is concatenated cannot be one set for both stacks.
    **{
        f"depthwise_lstm_{name}": _system(f"{_OURS}_{name}", about, _row("Table 4", score), "depthwise_lstm_base")
        for name, about, score in (
            ("concat", "attention outputs concatenated", 28.26),
            ("two_cells", "two cells a decoder layer", 28.81),
        )
    },
    # Table 6.
    "transformer_3l": _system(_STOCK, "3 layers", _row("Table 6", 26.36, czech=27.91), None, *depth(3, 3)),
    **{
        f"transformer_{layers}l": _system(
            _STOCK, f"{layers} layers, pre-norm", _row("Table 6", german, czech=czech), None,
            *PRE_NORM, *depth(layers, layers), training=_DEEP,
        )
        for layers, german, czech in ((12, 28.12, 29.38), (18, 28.60, 29.61), (24, 29.02, 29.73))
    },
    **{
        f"depthwise_lstm_{layers}l": _system(
            f"{_OURS}_{layers}l", f"{layers} layers", _row("Table 6", german, czech=czech), f"transformer_{layers}l",
            training=_BASE if layers == 3 else _DEEP,
        )
        for layers, german, czech in ((3, 27.38, 28.26), (12, 29.26, 29.64), (18, 29.41, 30.27), (24, 29.18, 30.02))
    },
    # The first version: its hidden net of 1 layer, and the row of it, are the same.
    "depthwise_lstm_big_gelu": _big(
        f"{_OURS}_big", "GELU for the GLU, Big", _row("v1, Table 1", 29.42, 43.04), "transformer_big",
        "--depthwise-hidden-activation", "gelu",
    ),
    "depthwise_lstm_gelu": _system(
        f"{_OURS}_gelu", "GELU for the GLU", _row("v1, Tables 1 to 5", 28.41, 40.02, 29.05), "depthwise_lstm_base"
    ),
    **{
        f"depthwise_lstm_gelu_{name}": _system(
            f"{_OURS}_gelu", f"the same, {about}", _row(f"v1, Table {table}", score), "depthwise_lstm_gelu", *options
        )
        for name, about, table, score, *options in (
            ("concat", "attention outputs concatenated", 3, 28.28, "--decoder-merge", "concat"),
            ("share_all", "gates and hidden nets shared", 4, 26.89, "--depthwise-sharing", "all"),
            ("share_none", "nothing shared", 4, 28.21, "--depthwise-sharing", "none"),
        )
    },
    **{
        f"depthwise_lstm_gelu_{layers}l": _system(
            f"{_OURS}_gelu", f"the same, {layers} layers", _row("v1, Table 5", german, czech=czech),
            f"transformer_{layers}l", *depth(layers, layers), training=_DEEP,
        )
        for layers, german, czech in ((12, 29.20, 29.60), (18, 29.23, 30.08), (24, 29.09, 29.95))
    },
    "depthwise_lstm_big_12l": _big(
        f"{_OURS}_big_12l", "Big, 12 layers", _row("Table 6", 30.69, czech=30.57), "transformer_big"
    ),
    # The paper has no baseline with these settings; this is ours.
    "transformer_big_12l_6l": _big(
        "sdt_transformer_wmt_en_de_big_pre_norm",
        "pre-norm Transformer, Big, 12 and 6 layers, relative positions, settings of Li et al. 2022a", {}, None,
        "--encoder-layers", "12", "--max-relative-positions", "16", training=_ODE,
    ),
    **{
        f"depthwise_lstm_big_{name}": _big(
            f"{_OURS}_big_{name}", about, _row("Table 6", german, czech=czech), "transformer_big_12l_6l", training=_ODE
        )
        for name, about, german, czech in (
            ("12l_6l", "Big, 12 and 6 layers, relative positions, settings of Li et al. 2022a", 31.12, 31.25),
            ("12l_6l_1layer", "the same with a hidden net of 1 layer", 30.83, 30.96),
        )
    },
}  # fmt: skip


def many_languages(scheduler: str) -> Training:
    """Return the systems of Section 3.5, which follows Zhang et al. (2020): 500,000 updates, the last 5 averaged."""
    return replace(
        _training(512, 500_000, 5, 12_500),
        options=(*adam("(0.9, 0.98)", "1e-8", noam(512, 4000), 4000, scheduler), *SMOOTHED),
        save=saved_every(5000, keep=5),
        target_tokens=False,
    )


def _from_and_to_english(*scores: float) -> dict[str, tuple[Published, ...]]:
    names = ("en-xx bleu94", "en-xx bleu4", "xx-en bleu94", "xx-en bleu4", "en-xx win_ratio", "xx-en win_ratio")
    return {"opus100": tuple(Published(name, score, "Table 7") for name, score in zip(names, scores, strict=False))}


#: Table 7: from English and into it; the win ratio is against the row LALN + LALT of Zhang et al.
OPUS100 = {
    "transformer_base": _from_and_to_english(18.75, 14.73, 27.02, 22.50),
    "depthwise_lstm_base": _from_and_to_english(23.38, 20.47, 28.41, 26.68, 98.94, 79.79),
}
