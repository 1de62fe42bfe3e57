"""The systems of "Shallow-to-Deep Training for Neural Machine Translation" and its baselines.

The paper's stages are published for 48 layers only. Those of 24 layers are as long as each other, which gives the
saving that the paper reports; those of 30, 54 and 60 fill the 21 epochs of its 48 layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from systems import PRE_NORM, SMOOTHED, TIED, Published, Stage, System, Training, adam

_DE, _FR = "wmt14_en_de", "wmt14_en_fr"
_UPDATES = {_DE: 50_000, _FR: 150_000}
PEAK = 0.002

#: The authors' program: micro-batches of 4096 tokens up to 24 layers, 2731 for 30 and 36, 2048 from 42 on.
_SHARES = ((24, 1.0), (36, 2 / 3), (10**6, 1 / 2))


def _training(warm_up: int, max_tokens: int, updates: int = _UPDATES[_DE], scheduler: str = "inverse_sqrt") -> Training:
    return Training(
        batch_tokens=65_536,
        updates=updates,
        options=(*adam("(0.9, 0.997)", "1e-8", PEAK, warm_up, scheduler), *SMOOTHED),
        save=("--keep-last-epochs", "5"),
        average=5,
        max_tokens=max_tokens,
    )


def _share(layers: int) -> float:
    return next(share for deepest, share in _SHARES if layers <= deepest)


def stages(*lengths: tuple[int, int]) -> tuple[Stage, ...]:
    """Layers and epochs of each stage."""
    return tuple(Stage(layers, epochs, _share(layers)) for layers, epochs in lengths)


def _even(layers: Sequence[int], epochs: Sequence[int]) -> tuple[Stage, ...]:
    return stages(*zip(layers, epochs, strict=True))


_STAGES_24 = _even((6, 12, 18, 24), (5, 5, 5, 6))
_STAGES_48 = _even(range(6, 49, 6), (2, 2, 2, 2, 2, 3, 3, 5))
#: An epoch of English-French has eight times as many updates: 9 of them are its 150,000.
_FRENCH_24 = _even((6, 12, 18, 24), (2, 2, 2, 3))
_FRENCH_48 = _even(range(6, 49, 6), (1, 1, 1, 1, 1, 1, 1, 2))

_DROPOUT = ("--dropout", "0.1", "--attention-dropout", "0.1", "--activation-dropout", "0.1")


def _row(table: str, tokenized: dict[str, float], sacrebleu: dict[str, float]) -> dict[str, tuple[Published, ...]]:
    metric = {_DE: "compound-split", _FR: "tokenized"}
    return {
        recipe: (Published(metric[recipe], score, table), Published("sacrebleu", sacrebleu[recipe], table, digits=1))
        for recipe, score in tokenized.items()
    }


def _german_french(
    german: tuple[float, float], french: tuple[float, float] | None = None, table: str = "Table 1"
) -> dict[str, tuple[Published, ...]]:
    pairs = {_DE: german} | ({_FR: french} if french else {})
    return _row(table, {name: pair[0] for name, pair in pairs.items()}, {name: pair[1] for name, pair in pairs.items()})


def _baseline(about: str, arch: str, *options: str, published: dict[str, tuple[Published, ...]], tokens: int) -> System:
    """Trained at full depth from the start."""
    training = _training(16_000, tokens)
    return System(
        arch,
        training,
        about,
        (*TIED, *options),
        published=published,
        for_recipe={_FR: {"training": replace(training, updates=_UPDATES[_FR])}},
    )


def _grown(
    preset: str,
    about: str,
    plan: tuple[Stage, ...],
    baseline: str,
    published: dict[str, tuple[Published, ...]],
    *options: str,
    french: tuple[Stage, ...] = (),
    scheduler: str = "inverse_sqrt_restart",
    tokens: int = 8192,
) -> System:
    return System(
        f"sdt_transformer_wmt_en_de_{preset}",
        _training(8000, tokens, updates=0, scheduler=scheduler),
        about,
        (*TIED, *options),
        stages=plan,
        baseline=baseline,
        published=published,
        for_recipe={_FR: {"stages": french}} if french else {},
    )


_STOCK = "transformer_wmt_en_de"
_UNCONNECTED = ("--encoder-block-size", "0")


def _ablation(about: str, table: str, score: float, *options: str, **changes: object) -> System:
    """Sdt-RPR-48L with one thing changed."""
    return replace(
        _grown(
            "48l",
            about,
            _STAGES_48,
            "sdt_rpr_48l",
            {_DE: (Published("compound-split", score, table),)},
            *options,
            tokens=4096,
        ),
        **changes,  # type: ignore[arg-type]  # names of System's fields
    )


SYSTEMS: dict[str, System] = {
    # Table 1.
    "pre_norm_base": _baseline(
        "fairseq's Transformer, pre-norm, 6 layers", _STOCK, *PRE_NORM, *_DROPOUT, tokens=8192,
        published=_german_french((27.05, 26.0), (41.00, 39.2)),
    ),
    "pre_norm_big": _baseline(
        "the same, Big", "transformer_wmt_en_de_big", *PRE_NORM, "--dropout", "0.3", tokens=4096,
        published=_german_french((28.79, 27.7), (42.40, 40.6)),
    ),
    "deep_24l": _baseline(
        "the same, 24 layers from the start", _STOCK, *PRE_NORM, *_DROPOUT, "--encoder-layers", "24", tokens=8192,
        published=_german_french((28.95, 27.8), (42.40, 40.6)),
    ),
    "deep_48l": _baseline(
        "the same, 48 layers from the start", _STOCK, *PRE_NORM, *_DROPOUT, "--encoder-layers", "48", tokens=4096,
        published=_german_french((29.44, 28.3), (42.75, 41.0)),
    ),
    "deep_rpr_24l": _baseline(
        "24 layers from the start, relative positions", "sdt_transformer_wmt_en_de_24l", *_UNCONNECTED, tokens=8192,
        published=_german_french((29.39, 28.3), (42.67, 40.9)),
    ),
    "deep_rpr_48l": _baseline(
        "48 layers from the start, relative positions", "sdt_transformer_wmt_en_de_48l", *_UNCONNECTED, tokens=4096,
        published=_german_french((30.03, 28.8), (43.08, 41.3)),
    ),
    "sdt_24l": _grown(
        "24l_absolute", "grown to 24 layers", _STAGES_24, "deep_24l",
        _german_french((29.02, 27.9), (42.42, 40.6)), french=_FRENCH_24,
    ),
    "sdt_rpr_24l": _grown(
        "24l", "grown to 24 layers, relative positions", _STAGES_24, "deep_rpr_24l",
        _german_french((29.39, 28.3), (42.69, 40.9)), french=_FRENCH_24,
    ),
    "sdt_48l": _grown(
        "48l_absolute", "grown to 48 layers", _STAGES_48, "deep_48l",
        _german_french((29.60, 28.5), (42.82, 41.0)), french=_FRENCH_48,
    ),
    "sdt_rpr_48l": _grown(
        "48l", "grown to 48 layers, relative positions", _STAGES_48, "deep_rpr_48l",
        _german_french((30.21, 29.0), (43.29, 41.5)), french=_FRENCH_48,
    ),
    "deep_big_24l": _baseline(
        "Big, 24 layers from the start", "transformer_wmt_en_de_big", *PRE_NORM, "--dropout", "0.3",
        "--encoder-layers", "24", tokens=4096, published=_german_french((29.90, 28.7)),
    ),
    "deep_rpr_big_24l": _baseline(
        "the same with relative positions", "sdt_transformer_wmt_en_de_big_24l", *_UNCONNECTED, tokens=4096,
        published=_german_french((30.40, 29.2)),
    ),
    "sdt_big_24l": _grown(
        "big_24l_absolute", "Big, grown to 24 layers", _STAGES_24, "deep_big_24l", _german_french((29.93, 28.7)),
        tokens=4096,
    ),
    "sdt_rpr_big_24l": _grown(
        "big_24l", "the same with relative positions", _STAGES_24, "deep_rpr_big_24l", _german_french((30.46, 29.3)),
        tokens=4096,
    ),
    # Table 5: what connects 30 layers, and deeper ones.
    "deep_rpr_30l": _baseline(
        "30 layers from the start", "sdt_transformer_wmt_en_de_30l_deep", tokens=5461,
        published=_german_french((29.52, 28.4), table="Table 5"),
    ),
    "dlcl_rpr_30l": _baseline(
        "the same, dense connections", "sdt_transformer_wmt_en_de_30l_dlcl", tokens=5461,
        published=_german_french((30.01, 28.9), table="Table 5"),
    ),
    "sparse_rpr_30l": _baseline(
        "the same, blocks of 6 layers connected", "sdt_transformer_wmt_en_de_30l", tokens=5461,
        published=_german_french((29.90, 28.8), table="Table 5"),
    ),
    "sdt_rpr_30l": _grown(
        "30l", "grown to 30 layers", _even(range(6, 31, 6), (4, 4, 4, 4, 5)), "deep_rpr_30l",
        _german_french((29.95, 28.9), table="Table 5"),
    ),
    "sdt_rpr_54l": _grown(
        "54l", "grown to 54 layers", _even(range(6, 55, 6), (2, 2, 2, 2, 2, 2, 2, 3, 4)), "deep_rpr_48l",
        _german_french((30.33, 29.2), table="Table 5"), tokens=4096,
    ),
    "sdt_rpr_60l": _grown(
        "60l", "grown to 60 layers", _even(range(6, 61, 6), (2, 2, 2, 2, 2, 2, 2, 2, 2, 3)), "deep_rpr_48l",
        _german_french((30.28, 29.1), table="Table 5"), tokens=4096,
    ),
    # What growth does: the rate that does not start again, other layers copied, other stages.
    "sdt_rpr_48l_no_restart": _ablation(
        "the rate does not start again", "Table 2", 29.93,
        training=_training(8000, 4096, updates=0, scheduler="inverse_sqrt"),
    ),
    "sdt_rpr_48l_top": _ablation(
        "the top layer is copied 6 times", "Table 3", 29.20, "--growth-strategy", "top"
    ),
    "sdt_rpr_48l_interpolation": _ablation(
        "copies beside their sources, blocks not connected", "Table 3", 29.46, "--growth-strategy", "interpolation",
        *_UNCONNECTED,
    ),
    "sdt_rpr_48l_interval1": _ablation(
        "1 epoch at each depth", "Table 4", 29.38, stages=_even(range(6, 49, 6), (1,) * 7 + (14,))
    ),
    "sdt_rpr_48l_doubling": _ablation(
        "the depth doubles every 4 epochs", "Table 4", 29.78, stages=stages((6, 4), (12, 4), (24, 4), (48, 9))
    ),
}  # fmt: skip
