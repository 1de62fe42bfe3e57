"""Patches for trainings that begin with a pretrained model: mBART's translation task, and XLM.

The first paragraph of each docstring is the fault in fairseq, as ``doctor`` prints it; what follows says what the patch
does ("Here ...").
"""

from __future__ import annotations

from itertools import chain
from types import SimpleNamespace
from typing import Any

import torch

from fairseq_compat.errors import UserError
from fairseq_compat.patching import patch, replaces


@patch("fairseq.tasks.fairseq_task", function="FairseqTask.__init__")
def set_task_args(original: Any, self: Any, cfg: Any, **kwargs: Any) -> None:
    """mBART cannot be fine-tuned: ``'TranslationFromPretrainedBARTTask' object has no attribute 'args'``.

    Other tasks also look for their options where earlier versions had them: the noisy channel task, and ``masked_lm``
    with ``--mask-whole-words``. Here tasks have this attribute.
    """
    original(self, cfg, **kwargs)
    if cfg is not None:  # older tasks pass None, and set the attribute themselves
        self.args = cfg


@patch("fairseq.tasks.translation_from_pretrained_bart", function="TranslationFromPretrainedBARTTask.__init__")
def check_mbart_languages(original: Any, self: Any, args: Any, source_dictionary: Any, target_dictionary: Any) -> None:
    """Without ``--langs`` mBART's task ends in a traceback, and a language that it lacks becomes the unknown word.

    All sentences of that language then end with the unknown word, and some options have no effect. Here all of these
    are refused.
    """
    if not getattr(args, "langs", None):
        raise UserError("--langs is missing; give the languages of the pretraining in their order, such as en_XX")
    for name in ("truncate_source", "num_batch_buckets"):
        if getattr(args, name, None):
            raise UserError(f"--{name.replace('_', '-')} has no effect on mBART's task; leave it out")
    original(self, args, source_dictionary, target_dictionary)  # adds the languages to the dictionaries
    for side, dictionary in (("source", source_dictionary), ("target", target_dictionary)):
        language = getattr(args, f"{side}_lang")
        if dictionary.index(f"[{language}]") == dictionary.unk():
            raise UserError(
                f"--{side}-lang {language} is not in --langs {args.langs}; give the languages of the pretraining, and "
                "use their names for the data"
            )


@patch("fairseq.tasks.translation_from_pretrained_bart")
def end_mbart_search_with_language(module: Any) -> None:
    """mBART's task ignores ``--sampling``, ``--constraints``, ``--lm-path`` and others, and its BLEU is too high.

    ``fairseq-interactive`` ignores ``--prepend-bos``. mBART's sentences end with a language token instead of the
    end-of-sentence token. Here its search differs from that of other tasks only in this, and ``--eval-bleu`` does not
    count that token as a word of every translation and reference.
    """
    from fairseq.sequence_scorer import SequenceScorer
    from fairseq.tasks import FairseqTask

    task = module.TranslationFromPretrainedBARTTask

    @replaces(task, "build_dataset_for_inference")
    def build_dataset_for_inference(
        original: Any, self: Any, src_tokens: Any, src_lengths: Any, constraints: Any = None
    ) -> Any:
        # As for training data; fairseq does it only there. Models of fairseq 0.9 do not have the option.
        if getattr(self.args, "prepend_bos", False):
            first = src_tokens[0].new_tensor([self.source_dictionary.bos()])
            src_tokens = [torch.cat([first, tokens]) for tokens in src_tokens]
        # fairseq appends the language token, and passes on the lengths before.
        return original(self, src_tokens, [len(tokens) + 1 for tokens in src_tokens], constraints)

    @replaces(task, "build_generator")
    def build_generator(
        original: Any,
        self: Any,
        models: Any,
        args: Any,
        seq_gen_cls: Any = None,
        extra_gen_cls_kwargs: Any = None,
        prefix_allowed_tokens_fn: Any = None,
    ) -> Any:
        end = self.target_dictionary.index(f"[{self.args.target_lang}]")
        # fairseq's own code gives SequenceGenerator few of the options; FairseqTask.build_generator gives all.
        if getattr(args, "score_reference", False):
            return SequenceScorer(
                self.target_dictionary, compute_alignment=getattr(args, "print_alignment", False), eos=end
            )
        options = {**(extra_gen_cls_kwargs or {}), "eos": end}
        generator = FairseqTask.build_generator(self, models, args, seq_gen_cls, options, prefix_allowed_tokens_fn)
        generator.search.eos = end  # by default, the dictionary's end of sentence
        return generator

    @replaces(task, "_inference_with_bleu")
    def _inference_with_bleu(original: Any, self: Any, generator: Any, sample: Any, model: Any) -> Any:
        end, end_of_sentences = generator.eos, self.target_dictionary.eos()

        # As end-of-sentence tokens, which fairseq drops when it joins tokens to text, they are not counted.
        def generate(*args: Any, **kwargs: Any) -> Any:
            translations = generator.generate(*args, **kwargs)
            for hypothesis in chain.from_iterable(translations):
                hypothesis["tokens"] = hypothesis["tokens"].masked_fill(hypothesis["tokens"] == end, end_of_sentences)
            return translations

        target = sample["target"].masked_fill(sample["target"] == end, end_of_sentences)
        return original(self, SimpleNamespace(generate=generate), {**sample, "target": target}, model)


@patch("fairseq.models.transformer_from_pretrained_xlm", function="upgrade_state_dict_with_xlm_weights")
def check_xlm_parameters(original: Any, state_dict: dict[str, Any], pretrained_xlm_checkpoint: str | None) -> Any:
    """An XLM model with another kind of positions ends in pages of names, without the option that is missing.

    A trained translation model reads XLM's file again whenever it is used, and cannot be used without it. Here the
    error names the options, and a trained model does not need the file.
    """
    if pretrained_xlm_checkpoint is None:  # a trained model already has these parameters
        return state_dict
    try:
        return original(state_dict, pretrained_xlm_checkpoint)
    except AssertionError as error:  # with all names of the model's parameters
        raise UserError(
            f"--pretrained-xlm-checkpoint {pretrained_xlm_checkpoint} has parameters that this model does not have; "
            "give the options of its training, and --encoder-learned-pos, --decoder-learned-pos"
        ) from error
