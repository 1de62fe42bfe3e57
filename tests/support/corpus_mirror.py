"""A mirror of every recipe's corpora, as small as wanted: archives with the real names, and inside them the real paths.

``build(folder, recipe)`` writes those of a recipe, with the quick start's corpus and languages made up from it. One
training corpus of each recipe has ``DIRT``, too.
"""

from __future__ import annotations

import gzip
import io
import tarfile
import zipfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

Pairs = list[tuple[str, str]]

#: Pairs of a training corpus that no cleaning may stumble over, and why it leaves them out (None: it keeps them).
DIRT: list[tuple[str, str, str | None]] = [
    ("One line\u2028and not two .", "Eine Zeile\u2028und nicht zwei .", None),
    ("R&D costs < 5 % > 3 | 2 [ 1 ] .", "F&E kostet < 5 % > 3 | 2 [ 1 ] .", None),
    ("Windows ends lines like this .\r", "So enden Zeilen unter Windows .\r", None),
    ("A vertical\x0btab , a form\x0cfeed and\x85more .", "Ein senkrechter\x0bTabulator\x1c und\x1dmehr .", None),
    ("", "Niemand hat das übersetzt .", "one side is empty"),
    ("Only white space follows .", " \u3000\t ", "one side is empty"),
    ("The same on both sides .", "The same on both sides .", "both sides are the same"),
]

#: Languages of the OPUS-100 archives here; ``yo`` has no dev and test sets.
OPUS_LANGUAGES = ("yo", "de", "fr")
_ZERO_SHOT = ("de-fr",)

IWSLT_TESTS = ("TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012")
NIST_TESTS = ("mt06", "mt02", "mt03", "mt04", "mt08")

CWMT = {
    "casia2015": ["casia2015"],
    "casict2011": ["casict-A", "casict-B"],
    "casict2015": ["casict2015"],
    "datum2015": ["datum"],
    "datum2017": [f"Book{number}" for number in range(1, 13)],
    "neu2017": ["NEU"],
}


_CORPUS = Path(__file__).parents[2] / "examples" / "quickstart" / "corpus"
#: Letters of made-up languages for German ones; letters that are not here stay.
_LETTERS = {
    "fr": str.maketrans("aeco", "àéçô"),
    "cs": str.maketrans("acersz", "áčěřšž"),
    "yo": str.maketrans("aeos", "àẹọṣ"),
}


class OwnTexts:
    """The quick start's English and German; other languages are German in their letters."""

    def __init__(self) -> None:
        self._lines = {
            language: (_CORPUS / f"train.{language}").read_text(encoding="utf-8").split("\n")
            for language in ("en", "de")
        }

    def pairs(self, first: str, second: str, start: int, number: int) -> Pairs:
        return list(zip(*(self._of(language, start, number) for language in (first, second)), strict=True))

    def _of(self, language: str, start: int, number: int) -> list[str]:
        lines = self._lines["en" if language == "en" else "de"][start : start + number]
        assert len(lines) == number
        if language == "zh":
            return ["".join(map(_ideographs, line.rstrip(" .?!").split())) + "。" for line in lines]
        return [line.lower().translate(_LETTERS[language]) if language in _LETTERS else line for line in lines]


def _ideographs(word: str) -> str:
    """Two Chinese characters for a word."""
    number = sum(ord(letter) * 31**place for place, letter in enumerate(word))
    return chr(0x4E00 + number % 97) + chr(0x5E00 + number % 89)


def build(folder: Path, recipe: str, *, train: int = 60, held_out: int = 12) -> Path:
    """Write the archives of a recipe, with so many pairs in each training corpus and in each of the other sets."""
    folder.mkdir(parents=True)
    for name, members in _ARCHIVES[recipe](_Parts(train, held_out)).items():
        if isinstance(members, bytes):
            (folder / name).write_bytes(members)
        elif name.endswith(".zip"):
            write_zip(folder / name, members)
        else:
            write_tar(folder / name, members)
    return folder


#: Members of an archive, by their paths; or the bytes of a file that is none.
Archives = Mapping[str, "dict[str, bytes] | bytes"]


class _Parts:
    """Where the texts of each set begin, so that no two have the same."""

    def __init__(self, train: int, held_out: int) -> None:
        self._texts = OwnTexts()
        self._train = train
        self._held_out = held_out

    def train(self, first: str, second: str, number: int = 0) -> Pairs:
        """The training corpus of that number; that of number 0 has dirt."""
        pairs = self._texts.pairs(first, second, number * self._train, self._train)
        return with_dirt(pairs) if number == 0 else pairs

    def held_out(self, first: str, second: str, number: int = 0) -> Pairs:
        return self._texts.pairs(first, second, 1000 + number * self._held_out, self._held_out)


def text(lines: Iterable[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def with_dirt(pairs: Pairs) -> Pairs:
    """Pairs with all of ``DIRT`` between them."""
    middle = len(pairs) // 2
    return [*pairs[:middle], *((source, target) for source, target, _ in DIRT), *pairs[middle:]]


def _sides(prefix: str, languages: tuple[str, str], pairs: Pairs, end: str = "") -> dict[str, bytes]:
    """``PREFIX.LANGUAGE`` of both languages."""
    return {f"{prefix}.{language}{end}": text(pair[side] for pair in pairs) for side, language in enumerate(languages)}


def _sgm(prefix: str, languages: tuple[str, str], pairs: Pairs) -> dict[str, bytes]:
    """A test set as WMT publishes it: a source set and a reference set, in documents and paragraphs."""
    name, members = prefix.rpartition("/")[2].partition("-")[0], {}
    for side, (language, kind) in enumerate(zip(languages, ("src", "ref"), strict=True)):
        lines = [f'<{kind}set setid="{name}" srclang="any"' + (f' trglang="{language}">' if kind == "ref" else ">")]
        for document, start in enumerate(range(0, len(pairs), 5)):
            lines += [f'<doc sysid="ref" docid="own/{document}" genre="news" origlang="en">', "<p>"]
            for number, pair in enumerate(pairs[start : start + 5], start=1):
                lines.append(f'<seg id="{number}">{pair[side]}</seg>')
            lines += ["</p>", "</doc>"]
        members[f"{prefix}-{kind}.{language}.sgm"] = text([*lines, f"</{kind}set>"])
    return members


def _wmt_train(parts: _Parts, language: str) -> dict[str, dict[str, bytes]]:
    """Europarl and Common Crawl, whose archives hold several pairs of languages."""
    both = (language, "en")
    other = _sides("training/europarl-v7.es-en", ("es", "en"), [("otra lengua", "another language")])
    return {
        "training-parallel-europarl-v7.tgz": {
            **other,
            **_sides(f"training/europarl-v7.{language}-en", both, parts.train(*both)),
        },
        "training-parallel-commoncrawl.tgz": {
            **_sides(f"commoncrawl.{language}-en", both, parts.train(*both, 1)),
            f"commoncrawl.{language}-en.annotation": b"http://127.0.0.1/ 1 2\n",
        },
    }


def _dev(parts: _Parts, language: str) -> dict[str, bytes]:
    members = {}
    for number, year in enumerate((2012, 2013)):
        members |= _sides(f"dev/newstest{year}", (language, "en"), parts.held_out(language, "en", number))
    return members


def _test(parts: _Parts, prefix: str, source: str, target: str) -> dict[str, bytes]:
    return _sgm(prefix, (source, target), parts.held_out(source, target, 2))


def _wmt14(parts: _Parts, language: str) -> Archives:
    news = _sides(f"training/news-commentary-v9.{language}-en", (language, "en"), parts.train(language, "en", 2))
    return {
        **_wmt_train(parts, language),
        "training-parallel-nc-v9.tgz": news,
        "dev.tgz": _dev(parts, language),
        "test-full.tgz": _test(
            parts, f"test-full/newstest2014-{'fren' if language == 'fr' else 'deen'}", "en", language
        ),
    }


def _wmt14_en_fr(parts: _Parts) -> Archives:
    both = ("fr", "en")
    giga = _sides("giga-fren.release2.fixed", both, parts.train(*both, 4), end=".gz")
    return {
        **_wmt14(parts, "fr"),
        "training-parallel-un.tgz": _sides("un/undoc.2000.fr-en", both, parts.train(*both, 3)),
        "training-giga-fren.tar": {name: gzip.compress(data, mtime=0) for name, data in giga.items()},
    }


def _wmt15_cs_en(parts: _Parts) -> Archives:
    both = ("cs", "en")
    archives: dict[str, dict[str, bytes] | bytes] = {
        **_wmt_train(parts, "cs"),
        "training-parallel-nc-v10.tgz": _sides("news-commentary-v10.cs-en", both, parts.train(*both, 2)),
        "dev.tgz": _dev(parts, "cs"),
        "wmt15-test.tgz": _test(parts, "test/newstest2015-csen", "cs", "en"),
    }
    pairs = parts.train(*both, 3)
    for number in range(10):
        rows = [f"id-{place}\t0.9\t{czech}\t{english}" for place, (czech, english) in enumerate(pairs[number::10])]
        packed = {
            f"data.plaintext-format/{number}{half}train.gz": gzip.compress(text(rows[half::2]), mtime=0)
            for half in (0, 1)
        }
        held_out = {f"data.plaintext-format/{number}8dtest.gz": gzip.compress(b"of another set\n", mtime=0)}
        archives[f"data-plaintext-format.{number}.tar"] = {**packed, **held_out}
    return archives


def _wmt18_zh_en(parts: _Parts) -> Archives:
    both = ("zh", "en")
    news = "training-parallel-nc-v13/news-commentary-v13.zh-en"
    archives: dict[str, dict[str, bytes] | bytes] = {
        "training-parallel-nc-v13.tgz": _sides(news, both, parts.train(*both)),
        "UNv1.0.en-zh.tar.gz": _sides("en-zh/UNv1.0.en-zh", both, parts.train(*both, 1)),
        "dev.tgz": _sgm("dev/newstest2017-zhen", both, parts.held_out(*both, 0)),
        "wmt18-test.tgz": _test(parts, "test/newstest2018-zhen", *both),
    }
    for number, (name, texts) in enumerate(CWMT.items(), start=2):
        pairs, members = parts.train(*both, number), {}
        for place, part in enumerate(texts):
            some = pairs[place :: len(texts)]
            chinese = "cn" if name in ("datum2017", "neu2017") else "ch"
            members[f"{name}/{part}_{chinese}.txt"] = text(pair[0] for pair in some)
            members[f"{name}/{part}_en.txt"] = text(pair[1] for pair in some)
        archives[f"{name}.zip"] = members
    return archives


def _opus100(parts: _Parts) -> Archives:
    archives = {}
    for language in OPUS_LANGUAGES:
        name = "-".join(sorted(("en", language)))
        home = f"opus-100-corpus/v1.0/supervised/{name}/opus.{name}"
        both = (language, "en")
        members = _sides(f"{home}-train", both, parts.train(*both))
        if language != "yo":
            members |= _sides(f"{home}-dev", both, parts.held_out(*both, 0))
            members |= _sides(f"{home}-test", both, parts.held_out(*both, 1)[:4])
        archives[f"opus-100-corpus-{name}-v1.0.tar.gz"] = members
    zero_shot: dict[str, bytes] = {}
    for name in _ZERO_SHOT:
        first, second = name.split("-")
        home = f"opus-100-corpus/v1.0/zero-shot/{name}/opus.{name}-test"
        zero_shot |= _sides(home, (first, second), parts.held_out(first, second, 2)[:4])
    return {**archives, "opus-100-corpus-zeroshot-v1.0.tar.gz": zero_shot}


def _iwslt14(parts: _Parts) -> Archives:
    both = ("de", "en")
    pairs = parts.train(*both) + parts.train(*both, 1)
    talk = ["<url>http://127.0.0.1/</url>", "<talkid>1</talkid>", "<keywords>own</keywords>"]
    members = {
        f"de-en/train.tags.de-en.{language}": text([*talk, "<title>A title</title>", *(pair[side] for pair in pairs)])
        for side, language in enumerate(both)
    }
    for number, part in enumerate(IWSLT_TESTS):
        for side, language in enumerate(both):
            segments = [pair[side] for pair in parts.held_out(*both, number)[:3]]
            lines = [f'<seg id="{place}"> {segment} </seg>' for place, segment in enumerate(segments, start=1)]
            members[f"de-en/IWSLT14.{part}.de-en.{language}.xml"] = text(["<refset>", "<doc>", *lines, "</doc>"])
    return {"de-en.tgz": members}


def _nist(parts: _Parts) -> Archives:
    both = ("zh", "en")
    files: dict[str, dict[str, bytes] | bytes] = {**_sides("train", both, parts.train(*both))}
    for number, name in enumerate(NIST_TESTS):
        pairs = parts.held_out(*both, number)
        files[f"{name}.zh"] = text(pair[0] for pair in pairs)
        for reference in range(4):
            # The first word of each reference is its own.
            files[f"{name}.en{reference}"] = text(f"Ref{reference} {pair[1]}" for pair in pairs)
    return files


def _tatoeba(parts: _Parts) -> Archives:
    pairs = [pair for number in range(4) for pair in parts.train("en", "de", number)]
    rows = [
        f"{english.strip()}\t{german.strip()}\tCC-BY 2.0" for english, german in pairs if english and german.strip()
    ]
    return {"deu-eng.zip": {"deu.txt": text(rows), "_about.txt": b"** Info **\n"}}


def _mixed(parts: _Parts) -> Archives:
    both, plain = ("de", "en"), ("news-test2008", "newssyscomb2009", *(f"newstest{year}" for year in range(2009, 2014)))
    dev: dict[str, bytes] = {}
    for number, name in enumerate(plain):
        dev |= _sides(f"dev/{name}", both, parts.held_out(*both, 2 + number))
    for number, year in enumerate(range(2014, 2019)):
        dev |= _sgm(f"dev/newstest{year}-deen", both, parts.held_out(*both, 2 + len(plain) + number))
    return {**_tatoeba(parts), **_multi30k(parts), "dev.tgz": dev}


def _multi30k(parts: _Parts) -> Archives:
    archives = {}
    for name, pairs in (
        ("train", parts.train("en", "de") + parts.train("en", "de", 1)),
        ("val", parts.held_out("en", "de", 0)),
        ("test_2016_flickr", parts.held_out("en", "de", 1)),
        ("test_2017_flickr", parts.held_out("en", "de", 20)),
        ("test_2018_flickr", parts.held_out("en", "de", 21)),
    ):
        archives |= _sides(name, ("en", "de"), pairs, end=".gz")
    return {name: gzip.compress(data, mtime=0) for name, data in archives.items()}


_ARCHIVES: dict[str, Callable[[_Parts], Archives]] = {
    "wmt14_en_de": lambda parts: _wmt14(parts, "de"),
    "wmt14_en_fr": _wmt14_en_fr,
    "wmt15_cs_en": _wmt15_cs_en,
    "wmt18_zh_en": _wmt18_zh_en,
    "opus100": _opus100,
    "iwslt14_de_en": _iwslt14,
    "nist_zh_en": _nist,
    "tatoeba_de_en": _tatoeba,
    "multi30k": _multi30k,
    "mixed_de_en": _mixed,
}


def write_tar(path: Path, members: Mapping[str, bytes]) -> None:
    """A tar file, compressed if its name says so, with its folders before what is in them."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        for folder in dict.fromkeys(str(Path(name).parent) for name in members if "/" in name):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(entry)
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    whole = data.getvalue()
    path.write_bytes(whole if path.suffix == ".tar" else gzip.compress(whole, mtime=0))


def write_zip(path: Path, members: Mapping[str, bytes]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
