"""Checks of fairseq's generation options, on a command line and in ``--eval-bleu-args``."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from fairseq_compat.errors import UserError
from fairseq_compat.ranges import require_ranges

#: Options that act only together with another: name -> the other.
_NEEDED = {
    "sampling_topk": "sampling",
    "sampling_topp": "sampling",
    "diverse_beam_strength": "diverse_beam_groups",
    "lm_weight": "lm_path",
}

#: Options that each choose a search; only one of them can be given.
_SEARCHES = ("sampling", "diverse_beam_groups", "match_source_len", "diversity_rate", "constraints")

#: Options of a search. ``--score-reference`` searches for nothing.
_OF_SEARCH = (
    *_SEARCHES,
    *("nbest", "max_len_a", "max_len_b", "min_len", "unnormalized", "lenpen", "temperature"),
    *("prefix_size", "no_repeat_ngram_size", "lm_path", "replace_unk"),
)

#: Options of models that refine a whole translation again and again; other searches do not read them.
_ITERATIVE = (
    "print_step",
    "retain_iter_history",
    "iter_decode_eos_penalty",
    "iter_decode_max_iter",
    "iter_decode_force_max_iter",
    "iter_decode_with_beam",
    "iter_decode_with_external_reranker",
    "decoding_format",
)


def generation_arguments(option: str, text: str | None) -> dict[str, Any]:
    """Return the generation options in the JSON object of another option, such as ``--eval-bleu-args``.

    Raises:
        UserError: it is not a JSON object, or has a name or value that is not a generation option's.
    """
    from fairseq.dataclass.configs import GenerationConfig
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    arguments = json_object(option, text)
    options = OmegaConf.structured(GenerationConfig)
    for name, value in arguments.items():
        if name not in options:
            raise UserError(f"{option} has {name!r}, which is not a generation option; give names such as beam")
        try:
            options[name] = value
        except OmegaConfBaseException as error:
            reason = str(error).splitlines()[0]
            raise UserError(f"{option} has {name!r} with the value {value!r}: {reason}") from None
    require_generation(options, option)
    return arguments


def json_object(option: str, text: str | None) -> dict[str, Any]:
    """Return the JSON object that is given with an option; an empty one if the option is not given.

    Raises:
        UserError: it is no JSON object.
    """
    if not text:
        return {}
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise UserError(f"{option} {text!r} is no JSON object; write it as '{{\"beam\": 4}}'")
    return value


def require_generation(options: Any, inside: str = "") -> None:
    """Raise UserError unless fairseq's generation options, a ``GenerationConfig``, are valid and consistent.

    ``inside``: the option whose value contains them; empty for options on a command line.
    """

    def named(name: str) -> str:
        value = getattr(options, name)
        if inside:
            return f"{inside} {name!r} {value}"
        option = f"--{name.replace('_', '-')}"
        return option if value is True else f"{option} {value}"

    require_ranges(options, inside)
    if options.sampling_topk > 0 and options.sampling_topp > 0:
        raise UserError(f"{named('sampling_topk')} does not go with {named('sampling_topp')}; leave one of them out")

    changed = _find_changed(options)
    for name, other in _NEEDED.items():
        if name in changed and other not in changed:
            raise UserError(f"{named(name)} has no effect without {other.replace('_', '-')}; give that, too")
    searches = [name for name in _SEARCHES if name in changed]
    if len(searches) > 1:
        raise UserError(f"{named(searches[0])} does not go with {named(searches[1])}; leave one of them out")
    if options.score_reference:
        for name in _OF_SEARCH:
            if name in changed:
                raise UserError(f"--score-reference does not search for translations; leave out {named(name)}")

    if options.min_len > options.max_len_b and not options.max_len_a and not options.match_source_len:
        raise UserError(f"{named('min_len')} is more than {named('max_len_b')} allows; give a larger --max-len-b")
    if options.nbest > options.beam:
        raise UserError(f"{named('nbest')} is more than {named('beam')}; give a larger beam")
    if options.sampling and options.nbest != options.beam and not inside:
        raise UserError(
            f"{named('sampling')} draws {named('beam')} samples, and all are printed; give --nbest the same number"
        )
    if options.diverse_beam_groups > 0 and options.beam % options.diverse_beam_groups:
        raise UserError(
            f"{named('diverse_beam_groups')} does not divide {named('beam')}; give a beam that is a multiple of it"
        )


def require_post_process(option: str, symbol: str | None) -> None:
    """Raise UserError unless an option names a way to join subwords."""
    from fairseq.data.data_utils import post_process

    try:
        post_process("", symbol)
    except NotImplementedError:
        known = "subword_nmt, sentencepiece, wordpiece, letter or none"
        raise UserError(f"{option} {symbol!r} is not a way to join subwords; give {known}") from None


def require_used(generator: Any, options: Any) -> None:
    """Raise UserError if options of iterative refinement are given for a generator without it."""
    from fairseq.iterative_refinement_generator import IterativeRefinementGenerator

    if isinstance(generator, IterativeRefinementGenerator):
        return
    changed = _find_changed(options)
    for name in _ITERATIVE:
        if name in changed:
            option = f"--{name.replace('_', '-')}"
            raise UserError(f"{option} is only for iterative refinement, such as --task translation_lev; leave it out")


def require_models_of_generator(generator: Any, models: Iterable[Any]) -> None:
    """Raise UserError if a generator refines whole translations and a model translates word by word, or vice versa."""
    from fairseq.iterative_refinement_generator import IterativeRefinementGenerator

    refines = isinstance(generator, IterativeRefinementGenerator)
    for model in models:
        if refines != hasattr(model, "initialize_output_tokens"):
            works = "refines whole translations" if not refines else "translates word by word"
            raise UserError(
                f"--path has a {type(model).__name__}, which {works}, and --task has a search for other models; give "
                "the task of its training, such as translation or translation_lev"
            )


def require_end(generator: Any, symbol: str | None, dictionary: Any) -> None:
    """Raise UserError unless translations end at ``--eos-token``, which most tasks do not pass to their generator."""
    if symbol is not None and dictionary.indices.get(symbol) != generator.eos:
        end = dictionary[generator.eos]
        raise UserError(f"--eos-token {symbol}: translations of this model end at {end}; leave it out")


def require_dropout(models: Iterable[Any], names: Iterable[str]) -> None:
    """Raise UserError if a name in ``--retain-dropout-modules`` matches no module with dropout.

    fairseq's dropout has the name of the class that contains it; others have that of their path, such as
    decoder.layers.0.
    """
    known: set[str] = set()
    for model in models:
        for path, module in model.named_modules():
            if hasattr(module, "module_name"):
                known.add(str(module.module_name))
            elif hasattr(module, "at_inference"):
                parts = path.split(".")
                known.update(".".join(parts[:end]) for end in range(1, len(parts) + 1))
    for name in names:
        if name not in known:
            shortest = sorted(known, key=lambda other: (other.count("."), other))[:6]
            examples = ", ".join(shortest)
            raise UserError(
                f"--retain-dropout-modules {name}: no model has dropout with this name; give a name such as {examples}"
            )


def _find_changed(options: Any) -> set[str]:
    """Return the names of the options that differ from their defaults."""
    from fairseq.dataclass.configs import GenerationConfig

    changed = set()
    for name, field in GenerationConfig.__dataclass_fields__.items():
        if getattr(options, name, field.default) != field.default:
            changed.add(name)
    return changed
