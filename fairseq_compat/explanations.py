"""Turns the exceptions that a wrong path or option causes inside fairseq into one sentence."""

from __future__ import annotations

import os
import re
import traceback

from fairseq_compat.errors import UserError
from fairseq_compat.process import explain_too_many_open_files

#: How assertions of fairseq begin that say everything the user needs.
OWN_SENTENCES = (
    "Must specify batch size",
    "Optimizer does not match",
    "Criterion does not match",
    "System output file",
    "Reference file",
    "--sampling",
    "--replace-unk requires",
)

#: The same of its ValueErrors; most are about the languages of ``translation_multi_simple_epoch``.
OWN_VALUE_ERRORS = (
    "--finetune-from-model can not be set together",
    "--lang-pairs is required",
    "--langs and --lang-dict can not both be specified",
    "language pair ",
    "DiverseBeamSearch requires --beam",
)


#: The name of a language's dictionary in a data folder.
_DICTIONARY = re.compile(r"dict\.(.+)\.txt")


#: How an error ends that PyTorch reports of a process which it has started for a device.
_IN_A_PROCESS = re.compile(
    r"^-- Process \d+ terminated .*^fairseq_compat\.errors\.UserError: ([^\n]+)\s*\Z", re.M | re.S
)

#: What omegaconf raises for an option's value, such as ``${oc.env:NOWHERE}``.
_WRONG_OPTIONS = ("ValidationError", "ConfigKeyError", "InterpolationKeyError", "InterpolationResolutionError")

#: What hydra reports of an option without a default that a tokenizer, say, cannot do without.
_OVERRIDE_OF_NOTHING = re.compile(r"Error merging override (?P<group>\w+)\.(?P<field>\w+)=null$")


def explain(error: BaseException) -> str | None:
    """Return one sentence for a mistake that the user can fix; None for anything else, which deserves its traceback."""
    if isinstance(error, UserError):
        return str(error)
    if isinstance(error, FileNotFoundError) and error.filename is not None:
        return _missing_file(os.fsdecode(error.filename))
    if isinstance(error, FileExistsError) and error.filename is None:  # fairseq-preprocess raises the bare path
        return f"{error} exists already; give another folder, or remove what is left of an earlier run"
    if isinstance(error, IsADirectoryError | NotADirectoryError) and error.filename is not None:
        return f"{os.fsdecode(error.filename)} cannot be used: {error.strerror}"
    message = str(error)
    if (match := _IN_A_PROCESS.search(message)) is not None:
        return match[1]
    if (sentence := explain_too_many_open_files(error)) is not None:
        return sentence
    if isinstance(error, FileNotFoundError) and message.startswith("Dataset not found:"):
        return f"{message}; --train-subset, --valid-subset or --gen-subset names a part that the data folder lacks"
    if isinstance(error, FileNotFoundError) and os.path.isabs(message):  # import_user_module raises the bare path
        return f"--user-dir {message} does not exist; give the folder fairseq_depthwise or the path to it"
    if isinstance(error, OSError) and message.startswith("Model file not found:"):
        return f"{message}; give the path of a checkpoint (checkpoint_best.pt, say) with --path"
    if message.startswith("Could not infer language pair"):
        return "the data folder holds no binarized data; give a folder that fairseq-preprocess made"
    if isinstance(error, ImportError) and (match := re.match(r"Failed to import --user-dir=(\S+)", message)):
        return (
            f"--user-dir {match[1]}: a module of the same name is already loaded from another folder; "
            "use that folder, or uninstall the other copy (pip uninstall fairseq-depthwise)"
        )
    if isinstance(error, KeyError) and error.args == ("'_name'",):  # what fairseq's build_model makes of it
        return (
            "the checkpoint's architecture is not known; name the plugin that defines it with --user-dir "
            "(fairseq-depthwise train, generate and interactive do so for the architectures of fairseq_depthwise)"
        )
    if isinstance(error, UnicodeDecodeError) and error.encoding.lower() in ("utf-8", "utf8"):
        return f"the text is not UTF-8: it has the byte 0x{error.object[error.start]:02x}"
    if re.match(r"Size of sample #\d+ is invalid", message):
        return re.sub(r"np\.int64\((\d+)\)", r"\1", message)
    if message.startswith("Cannot load model parameters from checkpoint") and error.__context__ is not None:
        if isinstance(error.__context__, UserError):
            return f"{message.split(';')[0]}: {error.__context__}"
        details = [line.strip() for line in str(error.__context__).splitlines()[1:2]]
        return "; ".join([message.rstrip("."), *(line[:200].rstrip(".") for line in details)])
    if type(error).__name__ in _WRONG_OPTIONS and (name := getattr(error, "full_key", None)):
        return (
            f"option {name} is wrong: {message.splitlines()[0]}"  # omegaconf's; of a file of options, or a checkpoint
        )
    if (missing := _OVERRIDE_OF_NOTHING.match(message)) is not None:
        option = "--" + missing["field"].replace("_", "-")
        return (
            f"{option} is not given (null), and this --{missing['group'].replace('_', '-')} needs it; give it a value, "
            f"such as {option} {'en' if option.endswith('-lang') else 'VALUE'}"
        )
    if isinstance(error, RuntimeError) and message.startswith("Error(s) in loading state_dict for "):
        path = _local_of(error, "load_model_ensemble_and_task", "filename") or "the checkpoint"
        reasons = "; ".join(line.strip()[:200].rstrip(". ") for line in message.splitlines()[1:4])
        return f"{path} does not fit its own options: {reasons}"
    if isinstance(error, FloatingPointError):
        return (
            f"training stopped: {message.splitlines()[0].rstrip('.') if message else 'a value is not a number'}; the "
            "log names the first module with such values; a lower --lr, more --warmup-updates or --clip-norm help, and "
            "checkpoints of before are whole"
        )
    # The search has come to the longest hypotheses, and some have no end.
    if isinstance(error, AssertionError) and (longest := re.fullmatch(r"(\d+) < \1", message)) is not None:
        if _is_constrained(error):
            return (
                f"--constraints: hypotheses have {longest[1]} tokens, the most that --max-len-a, --max-len-b and the "
                "model allow, and not all constraints of their line; give a larger --max-len-b or fewer constraints, "
                "or translate with fairseq-depthwise translate --constraints, which goes on without them"
            )
        return "the model's scores are NaN; if it computes with --fp16, leave that out, or give another checkpoint"
    if isinstance(error, AssertionError) and (sizes := re.match(r"world size is (\d+) but have (\d+) avail", message)):
        return (
            f"--distributed-world-size {sizes[1]} needs as many GPUs, and there are {sizes[2]}; several processes on "
            "CPUs are started with torchrun"
        )
    if (sentence := _sizes_that_fit_nothing(error, message)) is not None:
        return sentence
    if isinstance(error, NotImplementedError) and message.startswith("Unknown post_process option: "):
        name = message.rpartition(": ")[2]
        return f"--post-process (--remove-bpe) {name} is not known; the usual ones are subword_nmt and sentencepiece"
    if isinstance(error, TypeError) and _raised_in(error) == "init_constraints":
        return (
            "--constraints needs lines that come with their constraints, which binarized data has not; give them to "
            "fairseq-depthwise translate or interactive"
        )
    if isinstance(error, AssertionError) and message.startswith(OWN_SENTENCES):
        return message
    if isinstance(error, ValueError) and message.startswith(OWN_VALUE_ERRORS):
        return message
    if isinstance(error, ImportError) and message.startswith("Please install "):
        return " ".join(message.split())
    if isinstance(error, ImportError) and "'libnat'" in message:
        return "the Levenshtein Transformer needs libnat, a part of fairseq that this installation was compiled without"
    if message == "Torch not compiled with CUDA enabled" or message.startswith("Found no NVIDIA driver"):
        return (
            "this needs a GPU, and PyTorch finds none; besides --fp16, --profile does, and --quant-noise-scalar with "
            "fairseq's own models"
        )
    if isinstance(error, KeyError) and error.args == ("steps",):
        return "--print-step is for models that refine a translation in steps, and this one does not; leave it out"
    if isinstance(error, ValueError) and message == "optimizer is required!":
        return "--optimizer is not given, and has no default; name one, such as --optimizer adam"
    if message.startswith("Cannot combine --fp16 and --tpu"):  # which --bf16 is taken for
        return "--fp16 and --bf16 are two precisions; leave one of them out"
    if isinstance(error, ImportError) and "pip install fairscale" in message:
        return (
            "this --ddp-backend or --zero-sharding needs the package fairscale, which is not installed; give another "
            "one, such as --ddp-backend legacy_ddp"
        )
    if message.startswith("Expected to have finished reduction in the prior iteration"):
        return (
            "--ddp-backend pytorch_ddp, the default, waits for the gradients of all weights, and some had no part in a "
            "loss; give --find-unused-parameters, or --ddp-backend legacy_ddp"
        )
    if isinstance(error, KeyError) and _raised_in(error) == "parse_args_and_arch":  # names that argparse has checked
        return (
            f"--task {error.args[0]} is not known; name the plugin that defines it with --user-dir, such as "
            "--user-dir fairseq_depthwise"
        )
    if isinstance(error, RuntimeError) and not message and _raised_in(error) == "parse_args_and_arch":
        return "no architecture is given; name one with --arch, such as --arch transformer"
    return None


def _sizes_that_fit_nothing(error: BaseException, message: str) -> str | None:
    """Return one sentence where sentences and the limits of their length leave nothing to do."""
    if isinstance(error, AssertionError) and (limit := re.search(r"should not exceed max_tokens=(\d+)", message)):
        return f"--max-tokens {limit[1]} is less than the longest sentence has; give a larger number"
    if isinstance(error, AssertionError) and message.startswith("min_len cannot be larger than max_len"):
        return "--min-len is larger than what --max-len-a, --max-len-b and the model allow; give a smaller one"
    return None


def _raised_in(error: BaseException) -> str | None:
    """Return the name of the function that raised an exception."""
    frames = traceback.extract_tb(error.__traceback__)
    return frames[-1].name if frames else None


def _local_of(error: BaseException, function: str, name: str) -> str | None:
    """Return a local variable of a function that an exception has gone through, as text."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if frame.f_code.co_name == function and name in frame.f_locals:
            return str(frame.f_locals[name])
    return None


def _is_constrained(error: BaseException) -> bool:
    """Return whether an exception was raised by a search with constraints."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return bool(frames) and frames[-1].f_locals.get("constraints") is not None


def _missing_file(path: str) -> str:
    name = os.path.basename(path)
    if (wanted := _DICTIONARY.fullmatch(name)) is not None:
        folder = os.path.dirname(path) or "."
        names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
        if known := ", ".join(match[1] for name in names if (match := _DICTIONARY.fullmatch(name))):
            return f"{path} does not exist: {wanted[1]} is none of the languages of {folder}, which are {known}"
        return f"{path} does not exist; give a data folder that fairseq-preprocess made, with its dictionaries in it"
    return f"{path or repr(path)} does not exist; give the path of an existing file or folder"
