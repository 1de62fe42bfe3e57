"""A checkpoint with what it does not belong to, through the real commands: refused in one sentence, or as before."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from types import SimpleNamespace

import pytest
import torch

import fairseq_depthwise
from fairseq_compat import UserError, checkpoints, provenance
from fairseq_depthwise import DepthwiseLSTMTransformer

RunCommand = Callable[..., CompletedProcess[str]]

PLUGIN = Path(fairseq_depthwise.__file__).parent
ARCH = "depthwise_lstm_transformer"
UPDATE = "--optimizer adam --lr 0.005 --max-tokens 500 --no-epoch-checkpoints --cpu --max-update"
#: All words of the data begin with the separator: a dictionary without any is refused.
TEXT = "--tokenizer space --bpe subword_nmt --bpe-codes {codes} --bpe-separator w --source-lang src --target-lang tgt"


@pytest.fixture(scope="module")
def place(
    run_command: RunCommand, copy_reverse_data: Path, tiny_model_options: Callable[[str], list[str]],
    trained: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory,
) -> SimpleNamespace:  # fmt: skip
    """Data, the same with a dictionary in another order, subword codes, and a training's options and checkpoints.

    ``model`` records its text's tokenizer and subwords, ``permuted`` was trained with the other data, ``heads`` with
    four heads, ``older`` is the model without its record, ``swapped`` that with options of the other direction,
    ``averages`` the same with two values for the one table in its moving average.
    """
    folder = tmp_path_factory.mktemp("provenance")
    permuted = shutil.copytree(copy_reverse_data, folder / "permuted-bin")
    for path in permuted.glob("dict.*"):
        path.write_text("".join(f"{line}\n" for line in reversed(path.read_text().splitlines())))
    for name, merge in (("codes", "w 1"), ("other", "w 2")):
        (folder / name).write_text(f"#version: 0.2\n{merge}\n")
    (folder / "raw").write_text("w1 w2 w3\nw4 w5\n")
    found = SimpleNamespace(folder=folder, data=copy_reverse_data, permuted_bin=permuted, raw=folder / "raw")
    found.codes, found.other = folder / "codes", folder / "other"
    found.update, found.text = UPDATE, TEXT.format(codes=found.codes)
    options = [*tiny_model_options(ARCH), "--share-all-embeddings"]
    stock = [*tiny_model_options("transformer"), "--share-all-embeddings"]
    found.train_stock = " ".join(["fairseq-depthwise train", *stock, UPDATE])
    found.train = " ".join(["fairseq-depthwise train", *options, UPDATE])
    for name, words in {
        "model": f"{found.train} 2 {copy_reverse_data} {found.text}",
        "permuted": f"{found.train} 2 {permuted} {found.text}",
        "heads": f"{found.train} 2 {copy_reverse_data} --encoder-attention-heads 4",
    }.items():
        run_command(*words.split(), "--save-dir", folder / name)
        setattr(found, name, folder / name / "checkpoint_last.pt")
    found.stock, found.older = trained("transformer"), folder / "older.pt"
    found.other_weights = folder / "other_weights.pt"
    found.swapped, found.averages = folder / "swapped.pt", folder / "averages.pt"
    state = checkpoints.load_checkpoint(found.model)
    name = "decoder.embedding.tokens.weight"
    others = {**state["model"], name: state["model"][name] + 1}
    torch.save({**state, "model": others}, found.other_weights)
    del state["extra_state"][provenance.ENTRY]
    torch.save(state, found.older)
    state["cfg"]["task"].update(source_lang="tgt", target_lang="src")
    torch.save(state, found.swapped)
    state["extra_state"]["ema"] = others
    torch.save(state, found.averages)
    return found


#: What is resumed stays as it is: a copy of the checkpoint is in ``{run}``.
RESUMED = "{train} 3 --save-dir {run}"

REFUSED = {
    "translate": ("translate {model} {raw} --data {permuted_bin} --cpu", "source dictionary"),
    "translate, ensemble": ("translate {model}:{permuted} {raw} --data {data} --cpu", "source dictionary"),
    "translate, text of one": ("translate {heads}:{model} {raw} --data {data} --cpu", "--tokenizer space"),
    "translate, codes": ("translate {model} {raw} --data {data} --bpe-codes {other} --cpu", "--bpe-codes"),
    "export": ("export {model} {new} --data {permuted_bin}", "source dictionary"),
    "average": ("average {model} {permuted} --output {new}", "source dictionary"),
    "average, one file": ("average {model} {older} {model} --output {new}", "is the same as"),
    "average, heads": ("average {model} {heads} --output {new}", "--encoder-attention-heads 4"),
    "average, older": ("average {older} {heads} --output {new}", "--encoder-attention-heads 4"),
    "generate, older languages": ("generate {data} --path {model}:{swapped} --cpu", "--source-lang tgt"),
    "generate": ("generate {permuted_bin} --path {model} --cpu", "source dictionary"),
    "interactive, separator": (
        "interactive {data} --path {model} {text} --bpe-separator ## --cpu", "--bpe-separator w"
    ),
    "generate, stock": ("fairseq-generate {permuted_bin} --path {stock} --cpu", "source dictionary"),
    "validate": (
        "fairseq-validate {permuted_bin} --path {model} --user-dir {plugin} --max-tokens 500 --cpu",
        "source dictionary",
    ),
    "resumed, two tables": ("{train} 3 --save-dir {new} --restore-file {averages} {data} -s src -t tgt", "are shared"),
    "resumed": (f"{RESUMED} {{permuted_bin}} {{text}}", "source dictionary"),
    "resumed, architecture": ("{train_stock} 3 --save-dir {run} {data}", "--arch depthwise_lstm_transformer"),
    "resumed, heads": (f"{RESUMED} {{data}} --encoder-attention-heads 4", "--encoder-attention-heads 2"),
    "fine-tuned": ("{train} 3 --save-dir {new} --finetune-from-model {model} {permuted_bin}", "source dictionary"),
    "grown from": (
        "{train} 3 --save-dir {new} {permuted_bin} --task translation_layer_growth --growth-stages 2:1,3: "
        "--growth-from {model}",
        "source dictionary",
    ),
}  # fmt: skip


#: The same, and what nothing is known about, with a checkpoint that has no record, or that may be used so.
ACCEPTED = (
    "translate {older} {raw} --data {permuted_bin} --bpe-codes {other} --cpu",
    "{train} 3 --save-dir {new} --restore-file {older} {permuted_bin} --encoder-attention-heads 4",
    "{train} 3 --save-dir {new} --restore-file {model} --reset-optimizer {data} -s tgt -t src --dropout 0.3",
    "generate {data} --path {model}:{heads} --cpu",
)


def command(words: str, place: SimpleNamespace, folder: Path) -> list[str]:
    """Return a command's words; without a program it is one of ours."""
    (folder / "run").mkdir(exist_ok=True)
    shutil.copy(place.model, folder / "run/checkpoint_last.pt")
    filled = words.format(**vars(place), run=folder / "run", new=folder / "new", plugin=PLUGIN)
    return filled.split() if filled.startswith("fairseq-") else ["fairseq-depthwise", *filled.split()]


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str, refusal: Callable[..., str], place: SimpleNamespace, tmp_path: Path) -> None:
    words, named = REFUSED[case]
    assert named in refusal(*command(words, place, tmp_path))


@pytest.mark.parametrize("words", ACCEPTED)
def test_accepted(words: str, run_command: RunCommand, place: SimpleNamespace, tmp_path: Path) -> None:
    run_command(*command(words, place, tmp_path))


def test_the_record_is_carried_on(run_command: RunCommand, place: SimpleNamespace, tmp_path: Path) -> None:
    """Also by a training that goes on without its text's options."""
    recorded = provenance.recorded_in(checkpoints.load_checkpoint(place.model))
    assert {"tokenizer": "space", "bpe": "subword_nmt", "source_lang": "src", "target_lang": "tgt"}.items() <= (
        recorded.items()
    )
    assert recorded["encoder_attention_heads"] == 2
    assert recorded["bpe_codes"] != recorded["source_dictionary"] == recorded["target_dictionary"]
    for words, made in {
        "average {model} {other_weights} --output {new}": "new",
        "grow {model} {new} --layers 3": "new",
        "{train} 3 --save-dir {run} {data}": "run/checkpoint_last.pt",
    }.items():
        run_command(*command(words, place, tmp_path))
        assert provenance.recorded_in(checkpoints.load_checkpoint(tmp_path / made)) == recorded
        (tmp_path / made).unlink()


def test_from_pretrained_takes_the_files_beside_a_checkpoint(
    place: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And no others of the same name in the current folder; an empty text stays empty."""
    for name, codes in (("run", place.codes), ("elsewhere", place.other)):
        (tmp_path / name).mkdir()
        shutil.copy(codes, tmp_path / name / "codes")
    state = checkpoints.load_checkpoint(place.model)
    state["cfg"]["bpe"]["bpe_codes"] = "codes"
    checkpoints.save(state, tmp_path / "run/model.pt")
    monkeypatch.chdir(tmp_path / "elsewhere")
    given = (str(tmp_path / "run"), "model.pt", str(place.data))
    pretrained = DepthwiseLSTMTransformer.from_pretrained(*given)
    assert pretrained.cfg.bpe.bpe_codes == str(tmp_path / "run/codes")
    assert pretrained.translate(["w1 w2", " "])[1] == ""
    assert pretrained.translate("") == ""
    with pytest.raises(UserError, match="--bpe-codes"):
        DepthwiseLSTMTransformer.from_pretrained(*given, bpe_codes=str(place.other))
