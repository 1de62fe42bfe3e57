"""What each command refuses: one sentence that names the option or file, and nothing is written."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from probe_checkpoints import checkpoint_of, other_architecture
from unit_checkpoints import unit_checkpoint

#: Command line -> what the sentence names. DATA is the data folder; OUT and PROBE are outputs.
REFUSED = {
    "inspect nowhere.pt": "nowhere.pt",
    "inspect half.pt": "half.pt",
    "average --output OUT nowhere.pt": "nowhere.pt",
    "average --output OUT --last 9 texts": "--last 9",
    "average --output OUT sdt.pt mute.pt": "mute.pt",
    "grow sdt.pt OUT --layers 1": "to 1",
    "grow nowhere.pt OUT --layers 6": "nowhere.pt",
    "grow stock.pt OUT --layers 4": "--growth-from stock.pt",
    "grow less.pt OUT --layers 6": "encoder.layers.0",
    "average less.pt sdt.pt --output OUT": "encoder.layers.0",
    "translate tied.pt --data DATA": "encoder.embedding.tokens.weight",
    "translate sdt.pt:back.pt --data DATA": "--source-lang tgt",
    "score --ref texts/ref texts/none": "texts/none",
    "score --ref texts/ref texts/short": "texts/short has 2 sentences",
    "score texts/hyp": "--ref",
    "score --ref texts/blank texts/hyp": "blank",
    "score --ref texts/ref --metric chrf --tokenize zh texts/hyp": "--tokenize",
    "score --ref texts/ref --metric compound-split --detokenize de texts/hyp": "--detokenize",
    "compare texts/hyp texts/ref": "--ref",
    "compare --ref texts/ref texts/hyp texts/short": "texts/short has 2 sentences",
    "compare --languages base less": "fr",
    "compare --languages base other": "tok:zh",
    "compare --languages --metric chrf base base": "--metric is chrf",
    # Options that are not read.
    "compare --ref texts/ref --metric accuracy --test bootstrap texts/hyp texts/hyp": "--test",
    "compare --ref texts/ref --metric accuracy --samples 5 texts/hyp texts/hyp": "--samples",
    "compare --ref texts/ref --metric accuracy --seed 3 texts/hyp texts/hyp": "--seed",
    "compare --languages --seed 3 base base": "--seed",
    "compare --languages --ref nowhere base base": "--ref",
    "compare --languages --tokenize zh base base": "--tokenize",
    "compare --languages --detokenize de base base": "--detokenize",
    "report texts/hyp --json": "texts/hyp has no losses",
    "translate nowhere.pt --data DATA": "nowhere.pt",
    "translate sdt.pt --data nowhere": "--data",
    "translate sdt.pt texts/none --data DATA": "texts/none",
    "translate sdt.pt texts/hyp --data DATA --nbest 9 --json": "--nbest 9",
    "translate sdt.pt texts/hyp --data DATA -t fr": "--target-lang fr",
    "translate sdt.pt texts/hyp --data DATA --sampling --constraints": "--sampling",
    "translate sdt.pt texts/hyp --data DATA --int8 --compile": "--int8",
    "translate sdt.pt texts/hyp --data DATA --seed 2": "--sampling",
    "translate sdt.pt texts/hyp --data DATA --json --scores": "--scores",
    "export sdt.pt OUT": "gone",
    "export stock.pt OUT --data DATA": "architecture transformer",
    "export sdt.pt OUT --data DATA --int8 --format safetensors": "int8",
    "export lstm.pt OUT --data DATA --format safetensors": "architecture lstm",
    "export refines.pt OUT --data DATA --format safetensors": "--task translation_lev",
    "similarity nowhere.pt --data DATA": "nowhere.pt",
    "similarity sdt.pt --data nowhere --output OUT.svg": "--data nowhere",
    "gates stock.pt --data DATA": "stock.pt",
    "gates sdt.pt --data DATA --output OUT.bmp": "--output OUT.bmp",
    "units sdt.pt --data DATA": "sdt.pt",
    "units mute.pt --data DATA --sentence w1 --layer 3 --attention-output OUT.png": "--layer 3",
    "probe nowhere.pt --data DATA --output PROBE": "nowhere.pt",
    "probe sdt.pt --data DATA --output PROBE --layers encoder.9": "--layers encoder.9",
    "probe sdt.pt --data DATA --output PROBE --subset test2": "test2",
    "probe sdt.pt --data DATA --output texts": "texts",
    "serve nowhere.pt --nbest 5": "--nbest 5",
    "average sdt.pt back.pt --output OUT": "--source-lang tgt",
    "grow tied.pt OUT --layers 6": "are shared by the model's options",
    # Of a training that diverged: the first weight that is not finite is named.
    "average diverged.pt --output OUT": "decoder.layers.0",
    "grow diverged.pt OUT --layers 6": "decoder.layers.0",
    "translate diverged.pt --data DATA": "decoder.layers.0",
    "similarity diverged.pt --data DATA": "decoder.layers.0",
    "gates diverged.pt --data DATA": "decoder.layers.0",
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with checkpoints of each kind, texts, and scores of languages."""
    folder = tmp_path_factory.mktemp("place")
    whole = Path(checkpoint_of(folder, "sdt_transformer", "sdt.pt")).read_bytes()
    (folder / "half.pt").write_bytes(whole[: len(whole) // 2])
    state = torch.load(folder / "sdt.pt", weights_only=True)
    del state["model"]["encoder.layers.0.feed_forward.first.weight"]
    torch.save(state, folder / "less.pt")
    state = torch.load(folder / "sdt.pt", weights_only=True)
    state["cfg"]["task"] |= {"source_lang": "tgt", "target_lang": "src"}
    torch.save(state, folder / "back.pt")
    refining_task = {**state["cfg"]["task"], "_name": "translation_lev", "source_lang": "src", "target_lang": "tgt"}
    torch.save({**state, "cfg": {**state["cfg"], "task": refining_task}}, folder / "refines.pt")
    other_architecture(folder, "lstm")
    state["cfg"]["model"]["share_all_embeddings"] = True
    torch.save(state, folder / "tied.pt")
    checkpoint_of(folder, "transformer", "stock.pt")
    unit_checkpoint(folder, "mute.pt")
    state = torch.load(checkpoint_of(folder, "depthwise_lstm_transformer", "diverged.pt"), weights_only=True)
    name = next(name for name, value in state["model"].items() if "decoder.layers.0." in name and value.ndim == 2)
    state["model"][name][0, 0] = float("nan")
    torch.save(state, folder / "diverged.pt")
    for name in ("texts", "base", "less", "other"):
        (folder / name).mkdir()
    texts = {
        "ref": "a b\n" * 3,
        "hyp": "a c\n" * 3,
        "short": "a\nb\n",
        "blank": "\n \n\n",
    }
    for name, text in texts.items():
        (folder / "texts" / name).write_text(text, encoding="utf-8")
    for name, languages, tokenizer in (("base", ("de", "fr"), "13a"), ("less", ("de",), "13a"),
                                       ("other", ("de", "fr"), "zh")):  # fmt: skip
        for language in languages:
            result = {"score": 20, "metric": "sacrebleu", "signature": f"nrefs:1|tok:{tokenizer}"}
            (folder / name / f"{language}.json").write_text(json.dumps(result), encoding="utf-8")
    return folder


def contents(place: Path) -> list[Path]:
    """What is there, but for the folder that a probe works in."""
    return sorted(path for path in place.rglob("*") if "PROBE" not in path.parts)


@pytest.mark.parametrize("words", REFUSED)
def test_refused(
    words: str, place: Path, data: str, refusal: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    before = contents(place)
    assert REFUSED[words] in refusal(*words.replace("DATA", data).split())
    assert contents(place) == before
    assert not Path("PROBE/probe.json").exists()
