"""Patches of what is tried before training: disk space, failing validations, BLEU of empty translations."""

from __future__ import annotations

import shutil
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.criterions.cross_entropy import CrossEntropyCriterion
from fairseq.logging import metrics
from fairseq.tasks.translation import TranslationTask
from fairseq_cli import train
from sacrebleu.metrics import BLEU

from fairseq_compat import UserError


def configuration(**checkpoint: Any) -> Any:
    """Return what the functions below read of a configuration."""
    settings = {"save_dir": ".", "no_save": False, "no_save_optimizer_state": False, **checkpoint}
    return SimpleNamespace(
        checkpoint=SimpleNamespace(**settings),
        common=SimpleNamespace(fp16=False, bf16=False),
        dataset=SimpleNamespace(disable_validation=True, fixed_validation_seed=None),
        distributed_training=SimpleNamespace(zero_sharding="none"),
        optimization=SimpleNamespace(max_update=0),
    )


@pytest.mark.parametrize(("optimizer", "copies"), [({"betas": (0.9, 0.99)}, 3), ({"momentum": 0.9}, 2), ({}, 1)])
def test_a_checkpoint_needs_room(optimizer: dict[str, Any], copies: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model = torch.nn.Linear(100, 100, bias=False)
    needed = copies * 4 * 100 * 100
    trainer = SimpleNamespace(
        is_data_parallel_master=True,
        get_model=lambda: model,
        optimizer=SimpleNamespace(param_groups=[optimizer]),
        get_num_updates=lambda: 0,
    )
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=needed - 1))
    with pytest.raises(UserError, match="--save-dir"):
        train.train(configuration(patience=0), trainer, None, None)


def test_a_failing_validation_leaves_a_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(epoch: int) -> None:
        raise RuntimeError("no memory")

    saved: list[Any] = []
    monkeypatch.setattr(checkpoint_utils, "save_checkpoint", lambda *given: saved.append(given[1:]))
    trainer, epochs = SimpleNamespace(begin_valid_epoch=fail, is_fsdp=False), SimpleNamespace(epoch=3)
    with pytest.raises(RuntimeError, match="no memory"):
        train.validate(configuration(), trainer, None, epochs, ["valid"])
    assert saved == [(trainer, epochs, None)]


def test_empty_translations_count_in_bleu() -> None:
    reference, hypotheses = "a b c d e f", ["", "a b c d e f"]
    batches = []
    for hypothesis in hypotheses:
        score = BLEU(tokenize="none").corpus_score([hypothesis], [[reference]])
        logged = {"_bleu_sys_len": score.sys_len, "_bleu_ref_len": score.ref_len}
        for order in range(4):
            logged |= {f"_bleu_counts_{order}": score.counts[order], f"_bleu_totals_{order}": score.totals[order]}
        batches.append(logged)
    task = TranslationTask.__new__(TranslationTask)
    task.cfg = SimpleNamespace(eval_bleu=True)
    computed = {"loss": 1.0, "ntokens": 7, "nsentences": 1, "sample_size": 7}
    criterion = CrossEntropyCriterion(None, sentence_avg=False)

    def bleu(outputs: list[Any]) -> float:
        with metrics.aggregate(new_root=True) as validation:
            for output in outputs:
                task.reduce_metrics([{**computed, **output}], criterion)
            return float(validation.get_smoothed_values()["bleu"])

    expected = BLEU(tokenize="none").corpus_score(hypotheses, [[reference, reference]]).score
    assert bleu(batches) == bleu(batches[::-1]) == round(expected, 2)
    assert bleu(batches[:1]) == 0
    with metrics.aggregate(new_root=True) as training:
        task.reduce_metrics([computed], criterion)
    assert "bleu" not in training
