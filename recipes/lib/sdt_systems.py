"""The systems of "Shallow-to-Deep Training for Neural Machine Translation" and its baselines.

The authors' program has the stages of 48 layers only. The others fill the same 21 epochs, 50,000 updates; those of 24
layers are as long as each other. All end with at least five epochs at the full depth, whose checkpoints are averaged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from systems import PRE_NORM, SMOOTHED, TIED, Dropout, Published, Stage, System, Training, adam, saved_every

PAPER = "shallow-to-deep"
_DE, _FR = "wmt14_en_de", "wmt14_en_fr"
_UPDATES = {_DE: 50_000, _FR: 150_000}
PEAK = 0.002

#: Section 5.2: "all dropout"; for Big models it gives the residual dropout only.
_DROPOUT = Dropout(0.1, attention=0.1, activation=0.1)
_BIG_DROPOUT = replace(_DROPOUT, residual=0.3)

#: The authors' program: micro-batches of 4096 tokens up to 24 layers, 2731 for 30 and 36, 2048 from 42 on.
_SHARES = ((24, 1.0), (36, 2 / 3), (10**6, 1 / 2))

#: English-French has nine epochs: the last five checkpoints of the full depth are 5,000 updates apart.
_FRENCH_SAVE = saved_every(5000, keep=5)


def _training(
    warm_up: int,
    max_tokens: int,
    updates: int = _UPDATES[_DE],
    scheduler: str = "inverse_sqrt",
    dropout: Dropout = _DROPOUT,
) -> Training:
    return Training(
        batch_tokens=65_536,
        updates=updates,
        dropout=dropout,
        options=(*adam("(0.9, 0.997)", "1e-8", PEAK, warm_up, scheduler), *SMOOTHED),
        save=("--keep-last-epochs", "5"),
        average=5,
        max_tokens=max_tokens,
    )


def _share(layers: int) -> float:
    return next(share for deepest, share in _SHARES if layers <= deepest)


def stages(*lengths: tuple[int, int | None]) -> tuple[Stage, ...]:
    """Return layers and epochs of each stage."""
    return tuple(Stage(layers, epochs, _share(layers)) for layers, epochs in lengths)


def _even(layers: Sequence[int], epochs: Sequence[int]) -> tuple[Stage, ...]:
    return stages(*zip(layers, epochs, strict=True))


_STAGES_24 = _even((6, 12, 18, 24), (5, 5, 5, 6))
_STAGES_48 = _even(range(6, 49, 6), (2, 2, 2, 2, 2, 3, 3, 5))
#: An epoch of English-French has eight times as many updates: 9 of them are its 150,000.
_FRENCH_24 = _even((6, 12, 18, 24), (2, 2, 2, 3))
_FRENCH_48 = _even(range(6, 49, 6), (1, 1, 1, 1, 1, 1, 1, 2))

#: Table 4 names an interval, not the steps. One epoch for every 3 layers, two for 6 (the default) and four for 12 come
#: nearest to the published savings. 6 layers can be copied once, so that 12 layers take the first of four epochs at 18.
_INTERVAL_1 = _even((*range(6, 46, 3), 48), (*(1,) * 14, 7))
_INTERVAL_4 = _even((6, 12, 18, 30, 42, 48), (4, 1, 3, 4, 4, 5))
_DOUBLING = _even((6, 12, 24, 48), (4, 4, 4, 9))


def _row(table: str, german: tuple[float, ...], french: tuple[float, ...] = ()) -> dict[str, tuple[Published, ...]]:
    """Return a row with tokenized BLEU and, where there are two numbers, sacreBLEU."""
    published = {}
    for recipe, tokenized, scores in ((_DE, "compound-split", german), (_FR, "tokenized", french)):
        kinds = ((tokenized, 2), ("sacrebleu", 1))
        published[recipe] = tuple(
            Published(metric, score, table, digits) for (metric, digits), score in zip(kinds, scores, strict=False)
        )
    return {recipe: numbers for recipe, numbers in published.items() if numbers}


def _french(training: Training, **fields: Any) -> dict[str, dict[str, Any]]:
    """Return what English-French has instead."""
    return {_FR: {"training": replace(training, dropout=_DROPOUT, save=_FRENCH_SAVE, **fields)}}


def _baseline(
    about: str, arch: str, published: dict[str, tuple[Published, ...]], *options: str, tokens: int,
    updates: int = _UPDATES[_DE], dropout: Dropout = _DROPOUT, baseline: str | None = None,
) -> System:  # fmt: skip
    """Return a system that is trained at full depth from the start."""
    training = _training(16_000, tokens, updates, dropout=dropout)
    return System(
        arch, training, about, (*TIED, *options), baseline=baseline, published=published,
        for_recipe=_french(training, updates=_UPDATES[_FR]),
    )  # fmt: skip


def _grown(
    preset: str, about: str, plan: tuple[Stage, ...], baseline: str, published: dict[str, tuple[Published, ...]],
    *options: str, french: tuple[Stage, ...] = (), tokens: int = 8192, warm_up: int = 8000,
    scheduler: str = "inverse_sqrt_restart", dropout: Dropout = _DROPOUT,
) -> System:  # fmt: skip
    training = _training(warm_up, tokens, updates=0, scheduler=scheduler, dropout=dropout)
    for_recipe = _french(training) if french else {}
    if french:
        for_recipe[_FR]["stages"] = french
    return System(
        f"sdt_transformer_wmt_en_de_{preset}", training, about, (*TIED, *options), plan, baseline,
        published=published, for_recipe=for_recipe,
    )  # fmt: skip


_STOCK, _OURS = "transformer_wmt_en_de", "sdt_transformer_wmt_en_de"
_UNCONNECTED = ("--encoder-block-size", "0")


def _ablation(
    about: str, table: str, score: float, *options: str, plan: tuple[Stage, ...] = _STAGES_48, **more: Any
) -> System:
    """Return Sdt-RPR-48L with one thing changed."""
    return _grown("48l", about, plan, "sdt_rpr_48l", _row(table, (score,)), *options, **more)


SYSTEMS: dict[str, System] = {
    # Table 1.
    "pre_norm_base": _baseline(
        "fairseq's Transformer, pre-norm, 6 layers", _STOCK,
        _row("Table 1", (27.05, 26.0), (41.00, 39.2)), *PRE_NORM, tokens=8192,
    ),
    "pre_norm_big": _baseline(
        "the same, Big", f"{_STOCK}_big",
        _row("Table 1", (28.79, 27.7), (42.40, 40.6)), *PRE_NORM, tokens=4096, updates=100_000, dropout=_BIG_DROPOUT,
    ),
    "deep_24l": _baseline(
        "the same, 24 layers from the start", _STOCK,
        _row("Table 1", (28.95, 27.8), (42.40, 40.6)), *PRE_NORM, "--encoder-layers", "24", tokens=8192,
    ),
    "deep_48l": _baseline(
        "the same, 48 layers from the start", _STOCK,
        _row("Table 1", (29.44, 28.3), (42.75, 41.0)), *PRE_NORM, "--encoder-layers", "48", tokens=4096,
    ),
    "deep_rpr_24l": _baseline(
        "24 layers from the start, relative positions", f"{_OURS}_24l",
        _row("Table 1", (29.39, 28.3), (42.67, 40.9)), *_UNCONNECTED, tokens=8192,
    ),
    "deep_rpr_48l": _baseline(
        "48 layers from the start, relative positions", f"{_OURS}_48l",
        _row("Table 1", (30.03, 28.8), (43.08, 41.3)), *_UNCONNECTED, tokens=4096,
    ),
    # Figure 6 has two more depths, as points of a curve that nothing puts into numbers.
    **{
        f"deep_rpr_{layers}l": _baseline(
            f"{layers} layers from the start, relative positions; in Figure 6, without a number", _OURS,
            {}, *_UNCONNECTED, "--encoder-layers", str(layers), tokens=tokens,
        )
        for layers, tokens in ((36, 5461), (42, 4096))
    },
    **{
        f"sdt_{name}": _grown(
            preset, f"grown to {about}", plan, f"deep_{name}", _row("Table 1", german, french), french=french_plan
        )
        for name, preset, about, plan, french_plan, german, french in (
            ("24l", "24l_absolute", "24 layers", _STAGES_24, _FRENCH_24, (29.02, 27.9), (42.42, 40.6)),
            ("rpr_24l", "24l", "24 layers, relative positions", _STAGES_24, _FRENCH_24, (29.39, 28.3), (42.69, 40.9)),
            ("48l", "48l_absolute", "48 layers", _STAGES_48, _FRENCH_48, (29.60, 28.5), (42.82, 41.0)),
            ("rpr_48l", "48l", "48 layers, relative positions", _STAGES_48, _FRENCH_48, (30.21, 29.0), (43.29, 41.5)),
        )
    },
    "deep_big_24l": _baseline(
        "Big, 24 layers from the start", f"{_STOCK}_big",
        _row("Table 1", (29.90, 28.7)), *PRE_NORM, "--encoder-layers", "24", tokens=4096, dropout=_BIG_DROPOUT,
    ),
    "deep_rpr_big_24l": _baseline(
        "the same with relative positions", f"{_OURS}_big_24l",
        _row("Table 1", (30.40, 29.2)), *_UNCONNECTED, tokens=4096, dropout=_BIG_DROPOUT,
    ),
    "sdt_big_24l": _grown(
        "big_24l_absolute", "Big, grown to 24 layers", _STAGES_24, "deep_big_24l", _row("Table 1", (29.93, 28.7)),
        tokens=4096, dropout=_BIG_DROPOUT,
    ),
    "sdt_rpr_big_24l": _grown(
        "big_24l", "the same with relative positions", _STAGES_24, "deep_rpr_big_24l", _row("Table 1", (30.46, 29.3)),
        tokens=4096, dropout=_BIG_DROPOUT,
    ),
    # Table 5: what connects 30 layers, and deeper ones.
    **{
        f"{name}_rpr_30l": _baseline(about, f"{_OURS}_30l{preset}", _row("Table 5", bleu), tokens=5461)
        for name, about, preset, bleu in (
            ("deep", "30 layers from the start", "_deep", (29.52, 28.4)),
            ("dlcl", "the same, dense connections", "_dlcl", (30.01, 28.9)),
            ("sparse", "the same, blocks of 6 layers connected", "", (29.90, 28.8)),
        )
    },
    **{
        f"sdt_rpr_{depth}l": _grown(
            f"{depth}l", f"grown to {depth} layers", _even(range(6, depth + 1, 6), epochs), base, _row("Table 5", bleu)
        )
        for depth, epochs, base, bleu in (
            (30, (4, 4, 4, 4, 5), "deep_rpr_30l", (29.95, 28.9)),
            (54, (2, 2, 2, 2, 2, 2, 2, 2, 5), "deep_rpr_48l", (30.33, 29.2)),
            (60, (2, 2, 2, 2, 2, 2, 2, 1, 1, 5), "deep_rpr_48l", (30.28, 29.1)),
        )
    },
    # Tables 2 to 4: a rate that does not start again, new layers from elsewhere, other stages.
    "sdt_rpr_48l_no_restart": _ablation(
        "the rate does not start again", "Table 2", 29.93, scheduler="inverse_sqrt"
    ),
    "sdt_rpr_48l_random": _ablation("new layers start at random", "Table 2", 27.98, "--growth-strategy", "random"),
    "sdt_rpr_48l_random_no_restart": _ablation(
        "new layers start at random, the rate does not start again", "Table 2", 27.33, "--growth-strategy", "random",
        scheduler="inverse_sqrt",
    ),
    "sdt_rpr_48l_top": _ablation(
        "the top layer is copied 6 times", "Table 3", 29.20, "--growth-strategy", "top"
    ),
    "sdt_rpr_48l_interpolation": _ablation(
        "copies beside their sources, blocks not connected", "Table 3", 29.46, "--growth-strategy", "interpolation",
        *_UNCONNECTED,
    ),
    "sdt_rpr_48l_interval1": _ablation(
        "an epoch for every 3 layers, blocks of 3", "Table 4", 29.38, "--encoder-block-size", "3", plan=_INTERVAL_1
    ),
    "sdt_rpr_48l_interval4": _ablation("4 epochs for every 12 layers", "Table 4", 29.47, plan=_INTERVAL_4),
    "sdt_rpr_48l_doubling": _ablation("the depth doubles every 4 epochs", "Table 4", 29.78, plan=_DOUBLING),
    # Table 6.
    "pre_norm_12l": _baseline(
        "fairseq's Transformer, pre-norm, 12 encoder layers", _STOCK,
        _row("Table 6", (28.33,)), *PRE_NORM, "--encoder-layers", "12", tokens=8192, baseline="pre_norm_base",
    ),
    "stack_12l": replace(
        _grown(
            "pre_norm", "6 trained layers, frozen, and their copies on top", stages((6, 21), (12, 21)), "pre_norm_12l",
            _row("Table 6", (28.04,)), "--growth-freeze", "copied", warm_up=16_000,
        ),
        differs={"updates": "as many at 12 layers as the 6 layers had before; the paper does not say how many"},
    ),
    "reg_6l": _baseline(
        "pre-norm, 6 layers, representations of a sentence made alike", f"{_OURS}_reg",
        _row("Table 6", (27.45,)), tokens=8192, baseline="pre_norm_base",
    ),
}  # fmt: skip
