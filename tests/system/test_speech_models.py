"""Checkpoints of fairseq's speech models, which keep dictionaries of their task: they load, and compute the same."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.data import Dictionary
from fairseq.dataclass.configs import FairseqConfig
from fairseq.models.hubert import HubertConfig, HubertModel
from fairseq.models.wav2vec import Wav2Vec2Config, Wav2Vec2Model
from fairseq.tasks.audio_pretraining import AudioPretrainingConfig, AudioPretrainingTask
from fairseq.tasks.hubert_pretraining import HubertPretrainingConfig, HubertPretrainingTask
from omegaconf import OmegaConf

#: As published, but small.
SIZES = {
    **{"encoder_layers": 2, "encoder_embed_dim": 32, "encoder_ffn_embed_dim": 64, "encoder_attention_heads": 2},
    **{"final_dim": 16, "conv_feature_layers": "[(16,10,5)] + [(16,3,2)] * 2", "conv_pos": 16, "conv_pos_groups": 4},
}


def named(name: str, config: Any) -> Any:
    options = OmegaConf.structured(config)
    OmegaConf.set_struct(options, False)
    options._name = name
    return options


def hubert(folder: Path) -> tuple[Any, Any, Any]:
    options = HubertPretrainingConfig(data=str(folder), labels=["km"], label_dir=str(folder), label_rate=50)
    return (
        named("hubert_pretraining", options), named("hubert", HubertConfig(label_rate=50, **SIZES)),
        (HubertPretrainingTask, HubertModel),
    )  # fmt: skip


def wav2vec(folder: Path) -> tuple[Any, Any, Any]:
    sizes = Wav2Vec2Config(quantize_targets=True, latent_vars=8, latent_groups=2, **SIZES)
    options = AudioPretrainingConfig(data=str(folder))
    return named("audio_pretraining", options), named("wav2vec2", sizes), (AudioPretrainingTask, Wav2Vec2Model)


@pytest.mark.parametrize("kind", [hubert, wav2vec])
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_a_speech_model_is_loaded(kind: Any, tmp_path: Path) -> None:
    dictionary = Dictionary()
    for number in range(20):
        dictionary.add_symbol(str(number))
    dictionary.save(str(tmp_path / "dict.km.txt"))
    task_options, model_options, (task_class, model_class) = kind(tmp_path)
    task = task_class.setup_task(task_options)
    if kind is hubert:
        assert task.dictionaries == [dictionary]
    model = model_class.build_model(model_options, task)
    cfg = OmegaConf.structured(FairseqConfig)
    OmegaConf.set_struct(cfg, False)
    cfg.task, cfg.model = task_options, model_options
    history = [{"criterion_name": "", "optimizer_name": "", "lr_scheduler_state": {}, "num_updates": 5}]
    state = {"cfg": OmegaConf.to_container(cfg, resolve=True, enum_to_str=True), "args": None}
    state |= {"model": model.state_dict(), "optimizer_history": history, "task_state": task.state_dict()}
    torch.save(state | {"extra_state": {}, "last_optimizer_state": None}, tmp_path / "model.pt")
    os.unlink(tmp_path / "dict.km.txt")  # the file has it
    (loaded,), _, its_task = checkpoint_utils.load_model_ensemble_and_task([str(tmp_path / "model.pt")])
    if kind is hubert:
        assert its_task.dictionaries == [dictionary]
        assert its_task.dictionaries[0].encode_line("3 7", append_eos=False).tolist() == [7, 11]
    sound, padding = torch.randn(1, 4000), torch.zeros(1, 4000, dtype=torch.bool)
    found, expected = (one.eval().extract_features(sound, padding, mask=False) for one in (loaded, model))
    found, expected = (one["x"] if isinstance(one, dict) else one[0] for one in (found, expected))
    assert torch.equal(found, expected)
