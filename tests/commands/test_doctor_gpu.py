"""Every family in every precision on a device: what it computes there, and what it computes on a CPU in float32.

``pytest -m gpu`` is for a machine with a GPU; elsewhere the device is the CPU.
"""

from __future__ import annotations

import copy
from argparse import Namespace
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from torch import Tensor

from fairseq_depthwise.checkpoints.sizes import build_with_words
from fairseq_depthwise.commands import doctor
from fairseq_depthwise.models.base.vocabulary import placeholder_dictionary
from fairseq_depthwise.translation.beam_search import BeamSearch
from fairseq_depthwise.translation.translation_options import BeamOptions

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
WORDS, SENTENCES, LENGTH = 40, 3, 6

FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "stock": ("transformer", {}),
    "depth-wise": ("depthwise_lstm_transformer", {}),
    "sdt": ("sdt_transformer", {"encoder_block_size": 2}),
    "mute": ("mute_transformer", {}),
}

#: Precision -> length of the gradients' difference from those on the CPU, in their length, and difference of a token's
#: log-probability, at most: about three times what a CPU's bf16 and fp16 make; float32 may be computed in TF32.
PRECISIONS = {
    torch.float32: (5e-3, 5e-3),
    torch.bfloat16: (0.12, 0.2),
    torch.float16: (0.04, 0.03),
}


def model_of(family: str) -> Any:
    torch.manual_seed(1)
    arch, options = FAMILIES[family]
    sizes = {"embed_dim": 64, "layers": 2, "attention_heads": 2, "ffn_embed_dim": 128}
    sides = {f"{side}_{name}": size for side in ("encoder", "decoder") for name, size in sizes.items()}
    given = Namespace(**sides, share_all_embeddings=True, depthwise_hidden_dim=128, **options)
    ARCH_CONFIG_REGISTRY[arch](given)
    return build_with_words(ARCH_MODEL_REGISTRY[arch], vars(given), WORDS, WORDS).eval()


def batch_on(device: str) -> dict[str, Tensor]:
    """Sentences of one length, but for one that is half as long."""
    source, target = torch.randint(4, WORDS, (2, SENTENCES, LENGTH), generator=torch.Generator().manual_seed(2))
    source[:, -1] = target[:, -1] = 2
    source[0, : LENGTH // 2] = 1
    batch = {"src_tokens": source, "src_lengths": source.ne(1).sum(dim=1), "prev_output_tokens": target.roll(1, dims=1)}
    return {name: tensor.to(device) for name, tensor in batch.items()}


def gradients(model: Any, batch: dict[str, Tensor]) -> Tensor:
    """The gradients of the loss, times a power of two that spares fp16 numbers too small for it."""
    model.zero_grad()
    scores = model(**batch)[0].float().flatten(0, 1)
    (2**10 * F.cross_entropy(scores, batch["prev_output_tokens"].roll(-1, dims=1).flatten())).backward()
    grads = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    return torch.cat([grad.double().cpu().flatten() for grad in grads])


@pytest.mark.gpu
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("precision", PRECISIONS, ids=str)
def test_gradients_and_search_are_near_the_cpus(family: str, precision: torch.dtype) -> None:
    reference = model_of(family)
    model = copy.deepcopy(reference).to(DEVICE, precision)
    most_of_gradients, most_of_scores = PRECISIONS[precision]
    few = batch_on("cpu")
    expected = gradients(reference, few)
    assert (gradients(model, batch_on(DEVICE)) - expected).norm() <= most_of_gradients * expected.norm()

    dictionary = placeholder_dictionary(WORDS)
    task = TranslationTask(TranslationConfig(), dictionary, dictionary)
    search = BeamSearch(task, [model], BeamOptions(beam=2, max_length=LENGTH), torch.device(DEVICE))
    for number, hypotheses in enumerate(search.hypotheses({"net_input": batch_on(DEVICE)})):
        tokens = hypotheses[0]["tokens"].cpu()
        inputs = {name: few[name][number : number + 1] for name in ("src_tokens", "src_lengths")}
        with torch.no_grad():
            output = reference(**inputs, prev_output_tokens=tokens.roll(1)[None])
            scores = reference.get_normalized_probs(output, log_probs=True)[0].gather(1, tokens[:, None])[:, 0]
        assert (hypotheses[0]["positional_scores"].cpu().float() - scores).abs().max() <= most_of_scores


def test_the_command_compares_every_family_and_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    """With presets of small models, on the CPU; one that differs by more than it may is named."""
    for arch in ("transformer", "depthwise_lstm_transformer", "sdt_transformer", "mute_transformer"):
        preset = ARCH_CONFIG_REGISTRY[arch]

        def small(options: Namespace, preset: Callable[[Namespace], None] = preset) -> None:
            for side in ("encoder", "decoder"):
                setattr(options, f"{side}_embed_dim", 16)
                setattr(options, f"{side}_attention_heads", 2)
            preset(options)

        monkeypatch.setitem(ARCH_CONFIG_REGISTRY, arch, small)
    checks = list(doctor.check_gpu("cpu"))
    assert len(checks) == 12
    assert [check.name for check in checks if not check.ok] == []

    monkeypatch.setattr(doctor, "_PRECISIONS", {"float32": 0.0, "bfloat16": 0.0})
    wrong = [check.name for check in doctor.check_gpu("cpu") if not check.ok]
    assert len(wrong) == 4
    assert all(name.endswith(", bfloat16") for name in wrong)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu(refusal: Callable[..., str]) -> None:
    assert refusal("doctor", "--gpu").startswith("--gpu needs a GPU")
