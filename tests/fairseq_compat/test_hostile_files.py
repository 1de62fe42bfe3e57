"""Files of strangers: plain values and tensors of numbers come back, everything else is refused before it is built."""

from __future__ import annotations

import _codecs
import argparse
import io
import os
import pickle
import tarfile
import zipfile
from argparse import Namespace
from collections import Counter, OrderedDict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fairseq.data import Dictionary
from hostile_values import FORGED_ARRAY, Reduced
from omegaconf import OmegaConf

from fairseq_compat import UserError, checkpoints

FORMATS = pytest.mark.parametrize("new_format", [True, False], ids=["zip", "before-1.6"])


def tensor(size: tuple[int, ...], stride: tuple[int, ...], offset: int = 0, dtype: torch.dtype = torch.float32) -> Any:
    """A tensor of a storage of two numbers, as a file may describe it."""
    storage = torch.ones(2, dtype=dtype).storage()
    return Reduced(torch._utils._rebuild_tensor_v2, (storage, offset, size, stride, False, OrderedDict()))


def truth_values() -> torch.Tensor:
    return torch.tensor([0, 2], dtype=torch.uint8).view(torch.bool)


def cycle() -> list[Any]:
    around: list[Any] = []
    around.append(around)
    return around


def nested(depth: int, width: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value] * width
    return value


class OfNamespace(Namespace):
    """A class of one's own."""


def paired(depth: int) -> Any:
    """A tuple of one tuple twice, and so on: a kilobyte whose hash takes years."""
    value: Any = ()
    for _ in range(depth):
        value = (value, value)
    return value


def dictionary(**attributes: Any) -> Dictionary:
    """A dictionary of fairseq, which may be in a file, with other attributes, which may not."""
    made = Dictionary()
    vars(made).update(attributes)
    return made


f8, core = np.dtype("f8"), np.ones(1).__reduce__()[0]

HOSTILE: dict[str, Any] = {
    "a function": Reduced(os.getcwd, ()),
    "a function, named only": os.getcwd,
    "a function that tensors are made by, named only": torch._utils._rebuild_tensor_v2,
    "an object of omegaconf": OmegaConf.create({"a": 1}),
    "a subclass of options": OfNamespace(a=1),
    "options that say how they are copied": Namespace(__deepcopy__=1),
    "a forged dtype": FORGED_ARRAY,
    "an array of objects": np.array([Reduced(os.getcwd, ())], dtype=object),
    "a structured array": np.ones(1, dtype=[("a", "i8")]),
    "a dtype of the other byte order": np.dtype(">f8"),
    "a class of dtypes": Reduced(type(f8), ()),
    "a class of arrays": Reduced(np.ndarray, ((2**40,),)),
    "an array of too few bytes": Reduced(core, (np.ndarray, (0,), b"b"), (1, (2**40,), f8, False, b"12345678")),
    "an array of no bytes": Reduced(core, (np.ndarray, (0,), b"b"), (1, (1,), f8, False, [1.0])),
    "a NumPy number of too few bytes": Reduced(type(np.float64(1)).__reduce__(np.float64(1))[0], (f8, b"1234")),
    "NumPy truth values": Reduced(core, (np.ndarray, (0,), b"b"), (1, (1,), np.dtype("?"), False, b"\x02")),
    "dates": np.array(["2020-01-01"], dtype="M8[D]"),
    "a tensor larger than its storage": tensor((2**40,), (1,)),
    "a tensor of no values in many rows": tensor((2**40, 0), (1, 1)),
    "a tensor larger than all memory": tensor((2**62, 2**62), (1, 1)),
    "a tensor behind its storage": tensor((1,), (1,), offset=2**40),
    "a tensor before its storage": tensor((1,), (1,), offset=-1),
    "a tensor that runs backwards": tensor((2,), (-1,), offset=1),
    "a tensor of a negative size": tensor((-1,), (1,)),
    "a tensor of few numbers that are repeated": torch.ones(1).expand(3 * 10**9),
    "a tensor of lists": Reduced(torch._utils._rebuild_tensor_v2, ([1], 0, (1,), (1,), False, OrderedDict())),
    "complex numbers": torch.ones(2, dtype=torch.complex64),
    "truth values that are neither": truth_values(),
    "a sparse tensor": torch.eye(2).to_sparse(),
    "an empty tensor": torch.ones(2, device="meta"),
    "a quantized tensor": torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8),
    "an allocation": Reduced(bytearray, (2**40,)),
    "an allocation by PyTorch": Reduced(torch.Tensor, (2**40,)),
    "a counter": Counter("ab"),
    "a key": {("a",): 1},
    "a key of pairs": Reduced(OrderedDict, ([[paired(60), 1]],)),
    "keys of one hash": {number * (2**61 - 1): None for number in range(1, 9)},
    "a type of pairs": Reduced(np.dtype, (paired(60),)),
    "a size of lists": tensor((nested(30, 2),), (1,)),
    "a byte order of lists": Reduced(np.dtype, ("f8",), (3, nested(30, 2), None)),
    "an encoding of lists": Reduced(_codecs.encode, ("a", nested(30, 2))),
    "bytes of another encoding": Reduced(_codecs.encode, ("a", "rot13")),
    "a list in itself": cycle(),
    "a dictionary with a method": dictionary(index=1),
    "a dictionary of lists": dictionary(symbols=[["a"]]),
    "a dictionary of numbers that are none": dictionary(indices={"a": "b"}),
    "a billion values": nested(30, 2),
    "values within values": nested(100, 1),
    "more values than options have": [0] * 2**14,
    "an environment variable": {"option": "${oc.env:HOME}"},
    "an environment variable in another": {"option": "${a.${oc.env:HOME}}"},
    "an environment variable in a name": {"${oc.env:HOME}": 1},
    "an environment variable in options": Namespace(option=["http:${oc.env:HOME}"]),
    "an environment variable in JSON": {"probe_model": '{"a": "\\u0024{oc.env:HOME}"}'},
    "an address": {"option": "http://127.0.0.1/"},
    "an address in capitals": {"option": " HTTPS://127.0.0.1/"},
    "an address that leaves fairseq's": {"option": "https://dl.fbaipublicfiles.com/fairseq/../x"},
    "an address in a cloud": Namespace(option=("s3://bucket/key",)),
}


@pytest.mark.parametrize("kind", [*HOSTILE, "a bare pickle"])
@pytest.mark.parametrize("new_format", [True, False], ids=["zip", "before-1.6"])
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
def test_what_no_checkpoint_holds_is_refused(kind: str, new_format: bool, tmp_path: Path) -> None:
    from fairseq import checkpoint_utils

    path = tmp_path / "file.pt"
    if kind == "a bare pickle":
        path.write_bytes(pickle.dumps({"model": Reduced(os.mkdir, (str(tmp_path / "it-ran"),))}, protocol=2))
    else:
        state = {"model": {}, "cfg": {"task": {"here": HOSTILE[kind]}}}
        torch.save(state, path, _use_new_zipfile_serialization=new_format)
    for load in (checkpoints.load, partial(checkpoints.load, mapped=True), checkpoint_utils.load_checkpoint_to_cpu):
        with pytest.raises(UserError, match=rf"{path} is (refused|damaged|not)"):
            load(str(path))
    assert not (tmp_path / "it-ran").exists()


#: fairseq's Dictionary with an item at every index, which a loop over it never leaves.
ENDLESS = (
    b"cfairseq.data.dictionary\nDictionary\n)\x81"
    b"}(X\7\0\0\0symbols]X\5\0\0\0count]X\7\0\0\0indices}X\x08\0\0\0unk_wordX\1\0\0\0aub"
)

#: A text of a megabyte that is encoded a thousand times.
REPEATED = (
    b"X\0\0\x10\0" + b"x" * 2**20 + b"q\0X\6\0\0\0latin1q\1c_codecs\nencode\nq\2"  # remembers all three
    b"(" + b"h\2h\0h\1\x86R" * 1000 + b"t"
)


@pytest.mark.parametrize(
    "instructions",
    [
        b"ctorch._utils\n_rebuild_parameter\n" + ENDLESS + b"R",
        b"cargparse\nNamespace\n" + ENDLESS + b"\x81",
        b"ccollections\nOrderedDict\n(" + ENDLESS + b"tR",
        b"cargparse\nNamespace\n)R" + ENDLESS + b"b",
        ENDLESS + b"Q",
        REPEATED,
    ],
    ids=["arguments", "new object", "pairs", "state", "storage", "repeated"],
)
def test_a_small_file_takes_little_time_and_memory(instructions: bytes, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "file.pt", "w") as archive:
        archive.writestr("archive/data.pkl", b"\x80\2" + instructions + b".")
    with pytest.raises(UserError, match="is refused"):
        checkpoints.load(tmp_path / "file.pt")


def test_a_storage_has_one_type(tmp_path: Path) -> None:
    """Otherwise what was looked at as numbers could be taken for true and false."""
    state = [torch.tensor([2, 2], dtype=torch.uint8), torch.tensor([True, True])]
    torch.save(state, tmp_path / "file.pt")
    with zipfile.ZipFile(tmp_path / "file.zip", "w") as made, zipfile.ZipFile(tmp_path / "file.pt") as archive:
        for name in archive.namelist():
            made.writestr(name, archive.read(name).replace(b"X\1\0\0\x001", b"X\1\0\0\x000"))
    with pytest.raises(UserError, match="is refused"):
        checkpoints.load(tmp_path / "file.zip")


def test_members_lie_apart(tmp_path: Path) -> None:
    """Otherwise a file of megabytes takes the memory of thousands of them."""
    torch.save(torch.ones(10_000), tmp_path / "file.pt")
    with zipfile.ZipFile(tmp_path / "file.pt", "a") as archive:
        archive.filelist *= 100
        archive.writestr("more", "")
    with pytest.raises(UserError, match="is refused"):
        checkpoints.load(tmp_path / "file.pt")


def test_all_storages_are_filled(tmp_path: Path) -> None:
    """Otherwise a tensor has whatever was in memory."""
    torch.save([torch.ones(2)], tmp_path / "file.pt", _use_new_zipfile_serialization=False)
    content, keys = (tmp_path / "file.pt").read_bytes(), pickle.dumps([], protocol=2)
    begin = content.rindex(pickle.PROTO + b"\2]")
    (tmp_path / "file.pt").write_bytes(content[:begin] + keys)
    with pytest.raises(UserError, match="is refused"):
        checkpoints.load(tmp_path / "file.pt")


@FORMATS
def test_plain_values_come_back(new_format: bool, tmp_path: Path) -> None:
    shared, columns = torch.randn(4), np.arange(6.0).reshape(2, 3).T
    saved = {
        "plain": [None, True, False, 0, 255, 70_000, -1, 2**40, -(2**70), 0.1, "text", b"\xff", (), (1,), (1, (2, 3))],
        "options": argparse.Namespace(lr=[0.1], name="$HOME", nested={"a": {}}, init="tcp://localhost:1"),
        "tensors": OrderedDict(
            scalar=torch.tensor(3), empty=torch.ones(0, 2), view=torch.randn(3, 4).t()[1:], few=torch.ones(1).expand(5),
            parameter=torch.nn.Parameter(torch.ones(2)), one=shared, two=shared[1:], truth=torch.tensor([True, False]),
        ),
        "arrays": [columns, np.ones(0), np.ones((2, 0)), np.array([True, False]), np.array(3, "i2")],
    }  # fmt: skip
    torch.save(saved, tmp_path / "file.pt", _use_new_zipfile_serialization=new_format)
    for mapped in (False, True):
        loaded = checkpoints.load(tmp_path / "file.pt", mapped=mapped)
        assert loaded["plain"] == saved["plain"]
        assert loaded["options"] == saved["options"]
        assert list(loaded["tensors"]) == list(saved["tensors"])
        for name, tensor in saved["tensors"].items():
            assert torch.equal(loaded["tensors"][name], tensor), name
            assert loaded["tensors"][name].stride() == tensor.stride()
        loaded["tensors"]["one"][1] = 7
        assert loaded["tensors"]["two"][0] == 7
        for ours, theirs in zip(loaded["arrays"], saved["arrays"], strict=True):
            assert ours.dtype == theirs.dtype
            assert np.array_equal(ours, theirs)
    assert checkpoints.load(tmp_path / "file.pt")["tensors"]["one"][1] == shared[1]


@pytest.mark.parametrize("letter", "?bhilqBHILQefd")
def test_arrays_and_numbers(tmp_path: Path, letter: str) -> None:
    saved = {"array": np.arange(2).astype(letter), "number": np.ones(1, letter)[0]}
    torch.save(saved, tmp_path / "file.pt")
    loaded = checkpoints.load(tmp_path / "file.pt")
    assert loaded["array"].dtype == saved["array"].dtype
    assert loaded["array"].tolist() == saved["array"].tolist()
    assert loaded["number"] == saved["number"]


@pytest.mark.parametrize(("written", "read"), [("_core", "core"), ("core", "_core")])
def test_files_of_the_other_numpy(tmp_path: Path, written: str, read: str) -> None:
    """The older format keeps its pickle as it is, so that a name in it can be exchanged."""
    torch.save({"array": np.arange(3.0)}, tmp_path / "file.pt", _use_new_zipfile_serialization=False)
    content = (tmp_path / "file.pt").read_bytes()
    (tmp_path / "file.pt").write_bytes(content.replace(f"numpy.{written}.".encode(), f"numpy.{read}.".encode()))
    assert checkpoints.load(tmp_path / "file.pt")["array"].tolist() == [0, 1, 2]


def archive(path: Path, members: dict[str, str]) -> Path:
    """A ``.tar.gz`` with files, and links where the content begins with an arrow."""
    with tarfile.open(path, "w:gz") as file:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            if content.startswith("->"):
                member.type, member.linkname = tarfile.SYMTYPE, content[2:]
            elif content == "pipe":
                member.type = tarfile.FIFOTYPE
            member.size = len(content) if member.isreg() else 0
            file.addfile(member, io.BytesIO(content.encode()) if member.isreg() else None)
    return path


@pytest.mark.parametrize(
    "members",
    [
        {"model/../../escaped": "x"}, {"../escaped": "x"}, {"{outside}/escaped": "x"}, {"model/link": "->{outside}"},
        {"model/link": "->../../outside"}, {"model/pipe": "pipe"}, {"{outside}": "->x"},
    ],
)  # fmt: skip
def test_hostile_archive_is_refused(members: dict[str, str], tmp_path: Path) -> None:
    from fairseq import file_utils

    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "mine").write_text("kept", encoding="utf-8")
    named = {name.format(outside=outside): text.format(outside=outside) for name, text in members.items()}
    path = archive(tmp_path / "model.tar.gz", named)
    with pytest.raises(UserError, match=f"{path} is refused: its member"):
        file_utils.load_archive_file(str(path))
    assert [one.name for one in outside.iterdir()] == ["mine"]
    assert path.is_file()
    assert not list(tmp_path.rglob("escaped"))


def test_archive_of_a_model_is_unpacked(tmp_path: Path) -> None:
    from fairseq import file_utils

    path = archive(tmp_path / "model.tar.gz", {"model/a.txt": "first", "model/b.txt": "->a.txt"})
    folder = Path(file_utils.load_archive_file(str(path)))
    assert (folder / "a.txt").read_text(encoding="utf-8") == (folder / "b.txt").read_text(encoding="utf-8") == "first"
