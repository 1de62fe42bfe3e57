"""Valid ranges of fairseq's numeric options: other numbers have no meaning, fill memory, or never end."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from fairseq_compat.errors import UserError
from fairseq_compat.literals import evaluate


class Range(NamedTuple):
    """The valid numbers of an option; all are finite.

    Attributes:
        lowest: the lowest valid number.
        highest: the highest valid number.
        excluded: a number in between that is not valid.
        unset: the number by which fairseq leaves an option out.
    """

    lowest: float
    highest: float = math.inf
    excluded: float | None = None
    unset: float | None = None

    def __contains__(self, number: object) -> bool:
        if not isinstance(number, (int, float)) or not math.isfinite(number):
            return False
        is_within = self.lowest <= number <= self.highest and number != self.excluded
        return is_within or number == self.unset

    def __str__(self) -> str:
        text = f"{self.lowest:,} or more" if self.highest == math.inf else f"{self.lowest:,} to {self.highest:,}"
        if self.excluded is not None:
            text += f", not {self.excluded}"
        if self.unset is not None:
            text += f", or {self.unset} to leave it out"
        return text


_PROBABILITY = Range(0, 1)
_BELOW_ONE = Range(0, 1, excluded=1)
_NOT_NEGATIVE = Range(0)
_ABOVE_ZERO = Range(0, excluded=0)
_POSITIVE = Range(1)
_OPTIONAL = Range(0, unset=-1)
_SEED = Range(0, 2**32 - 1)  # NumPy's seeds
_LAYERS = Range(0, 10_000)
_BEAM = Range(1, 10_000)

#: Option -> its valid numbers.
RANGES: dict[str, Range] = {
    # Batches and data.
    "max_tokens": _POSITIVE,
    "max_tokens_valid": _POSITIVE,
    "batch_size": _POSITIVE,
    "batch_size_valid": _POSITIVE,
    "required_batch_size_multiple": _POSITIVE,
    "required_seq_len_multiple": Range(1, 1024),  # every sentence is padded to it
    "num_batch_buckets": _NOT_NEGATIVE,
    "max_source_positions": _POSITIVE,
    "max_target_positions": _POSITIVE,
    "tokens_per_sample": _POSITIVE,
    "output_dictionary_size": Range(1, unset=-1),
    "multilang_sampling_alpha": _NOT_NEGATIVE,
    "num_workers": Range(0, 1024),
    "data_buffer_size": _NOT_NEGATIVE,
    "curriculum": _NOT_NEGATIVE,
    "seed": _SEED,
    # Noise of tasks that mask or disturb tokens.
    "mask_prob": _PROBABILITY,
    "leave_unmasked_prob": _PROBABILITY,
    "random_token_prob": _PROBABILITY,
    "mask_multiple_length": _POSITIVE,
    "mask_stdev": _NOT_NEGATIVE,
    "word_dropout_prob": _PROBABILITY,
    "word_blanking_prob": _PROBABILITY,
    "max_word_shuffle_distance": _NOT_NEGATIVE,
    # When a training ends, validates, logs and saves.
    "max_update": _NOT_NEGATIVE,
    "max_epoch": _NOT_NEGATIVE,
    "stop_time_hours": _NOT_NEGATIVE,
    "stop_min_lr": _OPTIONAL,
    "patience": _OPTIONAL,
    "validate_interval": _POSITIVE,
    "validate_interval_updates": _NOT_NEGATIVE,
    "validate_after_updates": _NOT_NEGATIVE,
    "fixed_validation_seed": _SEED,
    "max_valid_steps": _POSITIVE,
    "log_interval": _POSITIVE,
    "save_interval": _POSITIVE,
    "save_interval_updates": _NOT_NEGATIVE,
    "keep_interval_updates": _OPTIONAL,
    "keep_interval_updates_pattern": Range(1, unset=-1),
    "keep_last_epochs": _OPTIONAL,
    "keep_best_checkpoints": _OPTIONAL,
    "checkpoint_shard_count": _POSITIVE,
    # Updates.
    "update_freq": _POSITIVE,
    "clip_norm": _NOT_NEGATIVE,
    "ema_decay": _PROBABILITY,
    "ema_start_update": _NOT_NEGATIVE,
    "ema_update_freq": _POSITIVE,
    "weight_decay": _NOT_NEGATIVE,
    "momentum": _PROBABILITY,
    "adam_eps": _NOT_NEGATIVE,
    "adamax_eps": _NOT_NEGATIVE,
    "adadelta_rho": _PROBABILITY,
    "adadelta_eps": _NOT_NEGATIVE,
    "lamb_eps": _NOT_NEGATIVE,
    "clip_threshold": _ABOVE_ZERO,
    "beta1": _BELOW_ONE,
    # Precision.
    "fp16_init_scale": _POSITIVE,
    "fp16_scale_window": _POSITIVE,
    "fp16_scale_tolerance": _PROBABILITY,
    "min_loss_scale": _NOT_NEGATIVE,
    "threshold_loss_scale": _NOT_NEGATIVE,
    "amp_batch_retries": _NOT_NEGATIVE,
    "amp_init_scale": _POSITIVE,
    "amp_scale_window": _POSITIVE,
    # Learning rates.
    "lr": _NOT_NEGATIVE,
    "min_lr": _NOT_NEGATIVE,
    "max_lr": _NOT_NEGATIVE,
    "warmup_updates": _NOT_NEGATIVE,
    "warmup_init_lr": _OPTIONAL,
    "force_anneal": _POSITIVE,
    "lr_shrink": _PROBABILITY,
    "lr_threshold": _NOT_NEGATIVE,
    "lr_patience": _NOT_NEGATIVE,
    "lr_period_updates": _OPTIONAL,
    "t_mult": _POSITIVE,
    "end_learning_rate": _NOT_NEGATIVE,
    "power": _NOT_NEGATIVE,
    "total_num_update": _NOT_NEGATIVE,
    "lr_deacy_period": _POSITIVE,  # fairseq's spelling
    "lr_decay": _PROBABILITY,
    "warmup_steps": _NOT_NEGATIVE,
    "hold_steps": _NOT_NEGATIVE,
    "decay_steps": _NOT_NEGATIVE,
    "init_lr_scale": _NOT_NEGATIVE,
    "final_lr_scale": _ABOVE_ZERO,
    # Several processes.
    "distributed_world_size": _POSITIVE,
    "distributed_rank": _NOT_NEGATIVE,
    "distributed_port": Range(1, 65_535, unset=-1),
    "all_gather_list_size": _POSITIVE,
    "bucket_cap_mb": _POSITIVE,
    "heartbeat_timeout": _OPTIONAL,
    "empty_cache_freq": _NOT_NEGATIVE,
    "model_parallel_size": _POSITIVE,
    "slowmo_momentum": _PROBABILITY,
    "localsgd_frequency": _POSITIVE,
    "nprocs_per_node": _POSITIVE,
    "block_lr": _NOT_NEGATIVE,
    "block_momentum": _PROBABILITY,
    "global_sync_iter": _POSITIVE,
    "warmup_iterations": _NOT_NEGATIVE,
    # Models and criterions.
    "encoder_layers": _LAYERS,
    "decoder_layers": _LAYERS,
    "encoder_embed_dim": _POSITIVE,
    "decoder_embed_dim": _POSITIVE,
    "decoder_input_dim": _POSITIVE,
    "decoder_output_dim": _POSITIVE,
    "encoder_ffn_embed_dim": _POSITIVE,
    "decoder_ffn_embed_dim": _POSITIVE,
    "encoder_attention_heads": _POSITIVE,
    "decoder_attention_heads": _POSITIVE,
    "dropout": _PROBABILITY,
    "attention_dropout": _PROBABILITY,
    "activation_dropout": _PROBABILITY,
    "relu_dropout": _PROBABILITY,
    "adaptive_softmax_dropout": _PROBABILITY,
    "encoder_layerdrop": _PROBABILITY,
    "decoder_layerdrop": _PROBABILITY,
    "adaptive_softmax_factor": _ABOVE_ZERO,
    "adaptive_input_factor": _ABOVE_ZERO,
    "quant_noise_pq": _PROBABILITY,
    "quant_noise_pq_block_size": _POSITIVE,
    "quant_noise_scalar": _PROBABILITY,
    "base_layers": _NOT_NEGATIVE,
    "base_sublayers": _POSITIVE,
    "label_smoothing": _PROBABILITY,
    "ignore_prefix_size": _NOT_NEGATIVE,
    "alignment_lambda": _NOT_NEGATIVE,
    # Generation. With a length penalty between these the scores of 100,000 tokens are finite in float32.
    "beam": _BEAM,
    "nbest": _BEAM,
    "max_len_a": _NOT_NEGATIVE,
    "max_len_b": _NOT_NEGATIVE,
    "min_len": _NOT_NEGATIVE,
    "prefix_size": _NOT_NEGATIVE,
    "no_repeat_ngram_size": _NOT_NEGATIVE,
    "temperature": Range(1e-6),  # logits divided by less may be infinite
    "sampling_topk": Range(1, unset=-1),
    "sampling_topp": Range(0, 1, excluded=0, unset=-1),
    "sentencepiece_alpha": _NOT_NEGATIVE,
    "iter_decode_eos_penalty": _NOT_NEGATIVE,
    "iter_decode_max_iter": _NOT_NEGATIVE,
    "iter_decode_with_beam": _BEAM,
    "lenpen": Range(-5, 5),
    "unkpen": Range(-1_000_000, 1_000_000),
    "diverse_beam_groups": Range(0, 10_000, unset=-1),
    "diverse_beam_strength": Range(0, 1000),
    "diversity_rate": Range(0, 1000, unset=-1),
    "lm_weight": Range(-1000, 1000),
    "buffer_size": _NOT_NEGATIVE,
    "softmax_batch": _POSITIVE,
    "context_window": _NOT_NEGATIVE,
    # Preprocessing.
    "thresholdsrc": _NOT_NEGATIVE,
    "thresholdtgt": _NOT_NEGATIVE,
    "nwordssrc": _OPTIONAL,
    "nwordstgt": _OPTIONAL,
    "padding_factor": _NOT_NEGATIVE,
    "workers": Range(1, 1024),
}

#: Scheduler -> its options that have a narrower range than in RANGES.
RANGES_OF_SCHEDULERS: dict[str, dict[str, Range]] = {
    "inverse_sqrt": {"warmup_updates": _POSITIVE},
    "polynomial_decay": {"total_num_update": _POSITIVE},
    "triangular": {"lr_period_updates": _POSITIVE},
}

#: Option -> the numbers in its value, which may be written as Python; their number is that of an example.
SEVERAL_NUMBERS: dict[str, tuple[Sequence[float], Range]] = {
    "adam_betas": ((0.9, 0.98), _BELOW_ONE),
    "adamax_betas": ((0.9, 0.999), _BELOW_ONE),
    "lamb_betas": ((0.9, 0.999), _BELOW_ONE),
    "adafactor_eps": ((1e-30, 1e-3), _NOT_NEGATIVE),
    "phase_ratio": ((0.1, 0.4, 0.5), _PROBABILITY),
}

#: Options with the numbers of layers, counted from 0 and separated by commas.
LAYERS_TO_KEEP = ("encoder_layers_to_keep", "decoder_layers_to_keep")


def require_ranges(options: Mapping[str, Any], inside: str = "") -> None:
    """Raise UserError if an option has a number, or a list with a number, outside its range.

    ``inside``: the option whose value contains these options; empty for options on a command line.
    """
    # The group of a configuration has the scheduler's name under another key than a command line.
    scheduler = options.get("lr_scheduler", options.get("_name"))
    ranges = RANGES | RANGES_OF_SCHEDULERS.get(str(scheduler), {})
    for name, valid in ranges.items():
        value: Any = options.get(name)
        for number in value if _is_list(value) else [value]:
            if isinstance(number, (int, float)) and number not in valid:
                raise UserError(f"{_option(name, inside)} {number} is out of range; give {valid}")
    for name, (example, valid) in SEVERAL_NUMBERS.items():
        value = options.get(name)
        if value is None:
            continue
        numbers = list(_numbers_in(value))
        if len(numbers) != len(example) or not all(number in valid for number in numbers):
            raise UserError(
                f"{_option(name, inside)} {str(value)!r} is not {len(example)} numbers, each {valid}; write them as "
                f"'{tuple(example)}'"
            )
    for name in LAYERS_TO_KEEP:
        if options.get(name) is not None:
            numbers_of_layers(_option(name, inside), options[name])


def numbers_of_layers(option: str, value: Any) -> list[int]:
    """Return the layers in the value of an option.

    Raises:
        UserError: it is not a list of different numbers, or a number is negative.
    """
    texts = str(value).split(",")
    if not all(map(str.isdecimal, texts)) or len(set(texts)) < len(texts):
        raise UserError(
            f"{option} {value!r} is not a list of layers; give their numbers, counted from 0, such as 0,2,4"
        )
    return [int(text) for text in texts]


def _numbers_in(value: Any) -> Iterator[Any]:
    """Yield what is in a list, or in the text of one."""
    if isinstance(value, str):
        try:
            value = evaluate(value)
        except UserError:
            return
    if _is_list(value):
        yield from value


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes))


def _option(name: str, inside: str) -> str:
    return f"{inside} {name!r}" if inside else f"--{name.replace('_', '-')}"
