"""Which exceptions become a sentence, which one, and that all others keep their traceback."""

from __future__ import annotations

import errno
import re
from pathlib import Path

import pytest

from fairseq_compat import UserError
from fairseq_compat.explanations import explain


@pytest.mark.parametrize(
    ("error", "parts"),
    [
        (UserError("--dropout 1.5 is out of range"), ["--dropout 1.5 is out of range"]),
        (FileNotFoundError(errno.ENOENT, "no", "bin/dict.de.txt"), ["bin/dict.de.txt does not", "fairseq-preprocess"]),
        (FileNotFoundError(errno.ENOENT, "no", b"some/file"), ["some/file does not exist"]),
        (FileNotFoundError("Dataset not found: valid (bin)"), ["valid (bin)", "--valid-subset"]),
        (FileNotFoundError("/somewhere/plugin"), ["--user-dir /somewhere/plugin does not exist"]),
        (FileExistsError("bin/dict.de.txt"), ["bin/dict.de.txt exists"]),
        (OSError("Model file not found: best.pt"), ["best.pt", "--path"]),
        (Exception("Could not infer language pair, please provide it explicitly"), ["fairseq-preprocess"]),
        (
            ImportError("Failed to import --user-dir=/x/plugin because the corresponding module name (plugin) is not"),
            ["--user-dir /x/plugin", "another folder"],
        ),
        (UnicodeDecodeError("utf-8", b"a\xe4b", 1, 2, "invalid continuation byte"), ["not UTF-8", "byte 0xe4"]),
        (
            Exception("Size of sample #3 is invalid (=(np.int64(1201), 0)) since max_positions=(1024, 1024), skip it"),
            ["sample #3 is invalid (=(1201, 0)) since max_positions=(1024, 1024), skip it"],
        ),
        (ImportError("Please install editdistance to use WER scorer"), ["Please install editdistance"]),
        (AssertionError("--sampling requires --nbest to be equal to --beam"), ["--nbest to be equal to --beam"]),
        (KeyError("steps"), ["--print-step"]),
        (AssertionError("world size is 2 but have 0 available devices"), ["--distributed-world-size 2", "are 0"]),
        (AssertionError("--sampling-topk requires --sampling"), ["--sampling-topk"]),
        (AssertionError("Sentences lengths should not exceed max_tokens=7"), ["--max-tokens 7"]),
        (AssertionError("min_len cannot be larger than max_len, please adjust these!"), ["--min-len"]),
        (NotImplementedError("Unknown post_process option: x"), ["--remove-bpe", "x is not known"]),
        (ValueError("DiverseBeamSearch requires --beam to be divisible by the number of groups"), ["--beam"]),
        (
            RuntimeError('Error(s) in loading state_dict for Model:\n\tMissing key(s) in state_dict: "x". '),
            ["does not fit its own options", '"x"'],
        ),
        (ImportError("Please install DeepSpeed: pip install deepspeed"), ["pip install deepspeed"]),
        (ImportError("cannot import name 'libnat' from 'fairseq'"), ["libnat"]),
        (AssertionError("Torch not compiled with CUDA enabled"), ["needs a GPU", "--quant-noise-scalar"]),
        (IsADirectoryError(errno.EISDIR, "Is a directory", "run"), ["run cannot be used: Is a directory"]),
        (ValueError("Cannot combine --fp16 and --tpu, use --bf16 on TPUs"), ["--fp16 and --bf16 are two precisions"]),
        (ImportError("\n\nPlease install fairscale with: pip install fairscale"), ["--ddp-backend legacy_ddp"]),
        (
            RuntimeError("Expected to have finished reduction in the prior iteration before starting\na new one."),
            ["--find-unused-parameters"],
        ),
        (
            Exception(
                "\n\n-- Process 1 terminated with the following error:\nTraceback (most recent call last):\n"
                "  File ...\nfairseq_compat.errors.UserError: --lr is none\n\n"
            ),
            ["--lr is none"],
        ),
        (ValueError("optimizer is required!"), ["--optimizer", "--optimizer adam"]),
        (KeyError("'_name'"), ["architecture is not known", "--user-dir"]),
        (AssertionError("Must specify batch size either with --max-tokens or --batch-size"), ["--max-tokens"]),
        (
            AssertionError("Optimizer does not match; please reset the optimizer (--reset-optimizer). A vs B"),
            ["A vs B"],
        ),
    ],
)
def test_mistake_of_the_user_is_one_sentence(error: BaseException, parts: list[str]) -> None:
    sentence = explain(error)
    assert sentence is not None
    assert len(sentence.splitlines()) == 1
    for part in parts:
        assert part in sentence


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("shape mismatch"),
        ValueError("a plain value error of the library"),
        UnicodeDecodeError("ascii", b"a\xe4b", 1, 2, "ordinal not in range(128)"),
        KeyError("best_loss"),
        AssertionError("a defect"),
        FileNotFoundError("some words"),
        PermissionError(errno.EACCES, "no", "file"),
        ImportError("cannot import name 'x'"),
    ],
)
def test_everything_else_keeps_its_traceback(error: BaseException) -> None:
    assert explain(error) is None


@pytest.mark.parametrize(("constraints", "named"), [(None, "scores are NaN"), ([[3]], "--constraints: .* 4 tokens")])
def test_a_search_without_an_end(constraints: object, named: str) -> None:
    """As fairseq's ends; its method has an argument of this name."""

    def generate(constraints: object) -> None:
        raise AssertionError("4 < 4")

    with pytest.raises(AssertionError) as raised:
        generate(constraints)
    assert re.search(named, str(explain(raised.value)))


def test_other_languages_the_plugins_task_and_the_first_difference_are_named(tmp_path: Path) -> None:
    from fairseq import options

    for language in ("de", "en"):
        (tmp_path / f"dict.{language}.txt").touch()
    sentence = explain(FileNotFoundError(errno.ENOENT, "no", f"{tmp_path}/dict.xx.txt"))
    assert f"xx is none of the languages of {tmp_path}, which are de, en" in str(sentence)

    with pytest.raises(KeyError) as raised:
        options.parse_args_and_arch(options.get_validation_parser("theirs"), ["data-bin"])
    assert str(explain(raised.value)).startswith("--task theirs ")

    error = Exception(
        "Cannot load model parameters from checkpoint last.pt; please ensure that the architectures match."
    )
    error.__context__ = RuntimeError("Error(s) in loading state_dict:\n\tsize mismatch for encoder.weight.\n\tand more")
    sentence = str(explain(error))
    assert "checkpoint last.pt" in sentence
    assert sentence.endswith("size mismatch for encoder.weight")
