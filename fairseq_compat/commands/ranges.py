"""What numbers options may have: fairseq's, those of the plugin's models, and those of ``fairseq-depthwise``.

The one place where this is said. A number that is not in the table has to be finite.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from fairseq_compat.errors import UserError
from fairseq_compat.literals import evaluate

#: The largest integer that PyTorch's tensors hold.
_LARGEST = 2**63 - 1


@dataclass(frozen=True)
class Range:
    """The numbers that an option may have.

    Attributes:
        at_least: the lowest.
        at_most: the highest.
        above: as ``at_least``, but not this number itself; ``below`` likewise.
        off: a number besides these that switches off what the option is about.
    """

    at_least: float | None = None
    at_most: float | None = None
    above: float | None = None
    below: float | None = None
    off: float | None = None

    def __contains__(self, value: float) -> bool:
        if value == self.off:
            return True
        return (
            (abs(value) <= _LARGEST if isinstance(value, int) else math.isfinite(value))
            and (self.at_least is None or value >= self.at_least)
            and (self.at_most is None or value <= self.at_most)
            and (self.above is None or value > self.above)
            and (self.below is None or value < self.below)
        )

    def __str__(self) -> str:
        limits = {"at least": self.at_least, "above": self.above, "at most": self.at_most, "below": self.below}
        words = " and ".join(f"{word} {_shown(limit)}" for word, limit in limits.items() if limit is not None)
        return (words or "finite") + ("" if self.off is None else f", or {_shown(self.off)} for none")


ANY = Range()
COUNT = Range(at_least=1)
NOT_NEGATIVE = Range(at_least=0)
NOT_NEGATIVE_OR_OFF = Range(at_least=0, off=-1)
POSITIVE = Range(above=0)
PROBABILITY = Range(at_least=0, below=1)
SHARE = Range(at_least=0, at_most=1)

#: Range -> names of options, as they are in a configuration.
_TABLE: dict[Range, str] = {
    # Sizes of models: beyond these limits nothing can be built, and trying takes hours or all memory.
    Range(at_least=0, at_most=10_000): "encoder_layers decoder_layers layers",
    Range(at_least=1, at_most=2**20): (
        "encoder_embed_dim decoder_embed_dim encoder_ffn_embed_dim decoder_ffn_embed_dim depthwise_hidden_dim "
        "encoder_attention_heads decoder_attention_heads decoder_input_dim decoder_output_dim quant_noise_pq_block_size"
    ),
    Range(at_least=0, at_most=2**16): "max_relative_positions",
    Range(at_least=1, at_most=2**24): "max_source_positions max_target_positions tokens_per_sample max_len",
    PROBABILITY: (
        "dropout attention_dropout activation_dropout relu_dropout adaptive_softmax_dropout encoder_layerdrop "
        "decoder_layerdrop quant_noise_pq quant_noise_scalar label_smoothing"
    ),
    # Batches, data and intervals; rates and weights.
    COUNT: (
        "batch_size batch_size_valid max_tokens max_tokens_valid required_batch_size_multiple validate_interval "
        "required_seq_len_multiple num_shards max_valid_steps nprocs_per_node distributed_world_size workers "
        "log_interval save_interval checkpoint_shard_count all_gather_list_size bucket_cap_mb "
        "ema_update_freq localsgd_frequency padding_factor update_freq nbest iter_decode_with_beam max_line_tokens "
        "buffer_lines max_sentences last best processes batch_lines queue_lines max_body max_lines max_chars "
        "fp16_scale_window amp_scale_window"
    ),
    NOT_NEGATIVE: (
        "num_workers data_buffer_size shard_id buffer_size validate_interval_updates validate_after_updates curriculum "
        "save_interval_updates num_batch_buckets empty_cache_freq device_id distributed_rank max_epoch prefix_size "
        "ema_start_update warmup_updates iter_decode_max_iter no_repeat_ngram_size min_len ignore_prefix_size "
        "thresholdsrc thresholdtgt context_window amp_batch_retries model_parallel_size pipeline_chunks "
        "distributed_num_procs max_update total_num_update "
        "lr clip_norm weight_decay stop_time_hours end_learning_rate min_lr max_lr alignment_lambda max_len_a "
        "fp16_scale_tolerance inter_similarity_weight permutation_penalty"
    ),
    NOT_NEGATIVE_OR_OFF: (
        "patience keep_last_epochs keep_best_checkpoints keep_interval_updates keep_interval_updates_pattern nwordssrc "
        "nwordstgt heartbeat_timeout upsample_primary output_dictionary_size "
        "stop_min_lr warmup_init_lr"
    ),
    Range(at_least=0, at_most=65535, off=-1): "distributed_port",
    Range(at_least=0, at_most=2**32 - 1): "seed fixed_validation_seed",
    Range(at_least=1, at_most=2**16): "threads",
    Range(at_least=1, at_most=10**6): "samples",
    POSITIVE: "adam_eps temperature fp16_init_scale amp_init_scale lr_shrink lr_decay",
    SHARE: "ema_decay momentum unit_mask_rate unit_noise_rate final_lr_scale init_lr_scale",
    Range(at_least=0, at_most=1, off=-1): "sampling_topp",
    Range(at_least=1, at_most=10_000): "beam",
    Range(at_least=1, at_most=4): "order",
    Range(at_least=0, at_most=2**24): "max_len_b",
    Range(at_least=1, off=-1): "sampling_topk diverse_beam_groups",
}

#: Name of an option -> its range.
RANGES: dict[str, Range] = {name: limits for limits, names in _TABLE.items() for name in names.split()}


def range_of(name: str) -> Range:
    """Return what numbers an option may have, by its name in a configuration."""
    return RANGES.get(name, ANY)


def check_number(name: str, value: Any) -> None:
    """Check the value of an option, or each of several; what is no number is left alone.

    Raises:
        UserError: it is out of range; the message has the option, the value and the range.
    """
    for number in value if isinstance(value, (list, tuple)) else [value]:
        if isinstance(number, (int, float)) and not isinstance(number, bool) and number not in range_of(name):
            limits = range_of(name)
            if isinstance(number, int) and number > _LARGEST and limits.at_most is None:
                limits = replace(limits, at_most=_LARGEST)
            raise UserError(f"{_option(name)} {_shown(number)} is out of range; it must be {limits}")


def check_options(options: Mapping[str, Any]) -> None:
    """Check all options of a command, and those that limit one another.

    Args:
        options: name -> value, as in a configuration; what is not given may be missing or None.

    Raises:
        UserError: as :func:`check_number`, or two contradict each other.
    """
    for name, value in options.items():
        check_number(name, value)
    betas = options.get("adam_betas")
    if betas is not None and not _are_betas(betas):
        raise UserError(
            f"--adam-betas {options['adam_betas']} is wrong; it must be two numbers, each at least 0 and below 1, such "
            'as "(0.9, 0.98)"'
        )
    for smaller, larger, least in (("nbest", "beam", 0), ("shard_id", "num_shards", 1)):
        value, limit = options.get(smaller), options.get(larger)
        if value is not None and limit is not None and value + least > limit:
            words = "at most" if least == 0 else "below"
            raise UserError(f"{_option(smaller)} {value} is out of range; it must be {words} {_option(larger)} {limit}")


def options_of(groups: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield name and value of all options of fairseq's configuration, which has them in groups."""
    for name, value in groups.items():
        if isinstance(value, Mapping):
            yield from options_of(value)
        else:
            yield name, value


def _are_betas(betas: Any) -> bool:
    if isinstance(betas, str):
        try:
            betas = evaluate(betas)
        except UserError:
            return True  # no literal, about which the optimizer says more
    return (
        isinstance(betas, (list, tuple))
        and len(betas) == 2
        and all(isinstance(beta, (int, float)) and beta in PROBABILITY for beta in betas)
    )


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


def _shown(number: float) -> str:
    """Return a number as it is typed, shortened where it is long."""
    if isinstance(number, int):
        return str(number) if abs(number) < 10**30 else "with more than 30 digits"
    return f"{number:g}"
