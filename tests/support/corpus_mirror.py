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
NIST_TESTS = ("mt06", "mt02", "mt03", "mt04", "mt08")

_CORPUS = Path(__file__).parents[2] / "examples" / "quickstart" / "corpus"
#: Letters of made-up languages for German ones; letters that are not here stay.
_LETTERS = {
    "fr": str.maketrans("aeco", "àéçô"),
    "cs": str.maketrans("acersz", "áčěřšž"),
    "yo": str.maketrans("aeos", "àẹọṣ"),
}


def own_pairs(first: str, second: str, start: int, number: int) -> Pairs:
    """Pairs of the quick start's English and German; other languages are German in their letters."""
    return list(zip(*(_lines_of(language, start, number) for language in (first, second)), strict=True))


def _lines_of(language: str, start: int, number: int) -> list[str]:
    path = _CORPUS / f"train.{'en' if language == 'en' else 'de'}"
    lines = path.read_text(encoding="utf-8").split("\n")[start : start + number]
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
    first, second, archives = _RECIPES[recipe]
    for name, members in archives(Corpus(first, second, train, held_out)).items():
        if isinstance(members, bytes):
            (folder / name).write_bytes(members)
        elif name.endswith(".zip"):
            write_zip(folder / name, members)
        else:
            write_tar(folder / name, members)
    return folder


#: Members of an archive, by their paths; or the bytes of a file that is none.
Archives = Mapping[str, "dict[str, bytes] | bytes"]


class Corpus:
    """Texts in two languages, no two sets of which have the same, as files that hold them."""

    def __init__(self, first: str, second: str, train: int, held_out: int) -> None:
        self.languages, self._sizes = (first, second), (train, held_out)

    def of(self, first: str, second: str) -> Corpus:
        """Other languages."""
        return Corpus(first, second, *self._sizes)

    def train(self, number: int = 0) -> Pairs:
        """The training corpus of that number; that of number 0 has all of ``DIRT`` in its middle."""
        size = self._sizes[0]
        pairs, middle = own_pairs(*self.languages, number * size, size), size // 2
        dirt = [(source, target) for source, target, _ in DIRT] if number == 0 else []
        return [*pairs[:middle], *dirt, *pairs[middle:]]

    def held_out(self, number: int = 0) -> Pairs:
        return own_pairs(*self.languages, 1000 + number * self._sizes[1], self._sizes[1])

    def sides(self, prefix: str, pairs: Pairs, end: str = "") -> dict[str, bytes]:
        """``PREFIX.LANGUAGE`` of both languages."""
        files = {
            f"{prefix}.{language}{end}": text(pair[side] for pair in pairs)
            for side, language in enumerate(self.languages)
        }
        return {name: gzip.compress(data, mtime=0) if end == ".gz" else data for name, data in files.items()}

    def sgm(self, prefix: str, number: int) -> dict[str, bytes]:
        """A test set as WMT publishes it: a source set and a reference set, in documents and paragraphs."""
        pairs = self.held_out(number)
        name, members = prefix.rpartition("/")[2].partition("-")[0], {}
        for side, (language, kind) in enumerate(zip(self.languages, ("src", "ref"), strict=True)):
            lines = [f'<{kind}set setid="{name}" srclang="any"' + (f' trglang="{language}">' if kind == "ref" else ">")]
            for document, start in enumerate(range(0, len(pairs), 5)):
                lines += [f'<doc sysid="ref" docid="own/{document}" genre="news" origlang="en">', "<p>"]
                for place, pair in enumerate(pairs[start : start + 5], start=1):
                    lines.append(f'<seg id="{place}">{pair[side]}</seg>')
                lines += ["</p>", "</doc>"]
            members[f"{prefix}-{kind}.{language}.sgm"] = text([*lines, f"</{kind}set>"])
        return members


def text(lines: Iterable[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def _wmt(corpus: Corpus, version: str, news: str) -> dict[str, dict[str, bytes]]:
    """Archives that hold several pairs of languages: Europarl, Common Crawl, news, and sets of two years."""
    pair = "-".join(corpus.languages)
    europarl = {"training/europarl-v7.es-en.es": b"otra lengua\n", "training/europarl-v7.es-en.en": b"one more\n"}
    crawled = {f"commoncrawl.{pair}.annotation": b"http://127.0.0.1/ 1 2\n"}
    years = (corpus.sides(f"dev/newstest201{2 + number}", corpus.held_out(number)) for number in (0, 1))
    return {
        "training-parallel-europarl-v7.tgz": {
            **europarl, **corpus.sides(f"training/europarl-v7.{pair}", corpus.train(0)),
        },
        "training-parallel-commoncrawl.tgz": {**corpus.sides(f"commoncrawl.{pair}", corpus.train(1)), **crawled},
        f"training-parallel-nc-{version}.tgz": corpus.sides(f"{news}-{version}.{pair}", corpus.train(2)),
        "dev.tgz": {name: data for year in years for name, data in year.items()},
    }  # fmt: skip


def _wmt14(corpus: Corpus) -> dict[str, dict[str, bytes]]:
    language = corpus.languages[0]
    test = corpus.of("en", language).sgm(f"test-full/newstest2014-{'fren' if language == 'fr' else 'deen'}", 2)
    return {**_wmt(corpus, "v9", "training/news-commentary"), "test-full.tgz": test}


def _wmt14_en_fr(corpus: Corpus) -> Archives:
    return {
        **_wmt14(corpus),
        "training-parallel-un.tgz": corpus.sides("un/undoc.2000.fr-en", corpus.train(3)),
        "training-giga-fren.tar": corpus.sides("giga-fren.release2.fixed", corpus.train(4), end=".gz"),
    }


def _wmt15_cs_en(corpus: Corpus) -> Archives:
    archives = _wmt(corpus, "v10", "news-commentary")
    archives["wmt15-test.tgz"] = corpus.sgm("test/newstest2015-csen", 2)
    pairs = corpus.train(3)
    for number in range(10):
        rows = [f"id-{place}\t0.9\t{czech}\t{english}" for place, (czech, english) in enumerate(pairs[number::10])]
        texts = {"0train": text(rows[::2]), "1train": text(rows[1::2]), "8dtest": b"of another set\n"}
        archives[f"data-plaintext-format.{number}.tar"] = {
            f"data.plaintext-format/{number}{part}.gz": gzip.compress(data, mtime=0) for part, data in texts.items()
        }
    return archives


def _wmt18_zh_en(corpus: Corpus) -> Archives:
    archives: dict[str, dict[str, bytes]] = {
        "training-parallel-nc-v13.tgz": corpus.sides(
            "training-parallel-nc-v13/news-commentary-v13.zh-en", corpus.train()
        ),
        "UNv1.0.en-zh.tar.gz": corpus.sides("en-zh/UNv1.0.en-zh", corpus.train(1)),
        "dev.tgz": corpus.sgm("dev/newstest2017-zhen", 0),
        "wmt18-test.tgz": corpus.sgm("test/newstest2018-zhen", 2),
    }
    cwmt = {
        "casia2015": ["casia2015"], "casict2011": ["casict-A", "casict-B"], "casict2015": ["casict2015"],
        "datum2015": ["datum"], "datum2017": [f"Book{number}" for number in range(1, 13)], "neu2017": ["NEU"],
    }  # fmt: skip
    for number, (name, texts) in enumerate(cwmt.items(), start=2):
        chinese = "cn" if name in ("datum2017", "neu2017") else "ch"
        archives[f"{name}.zip"] = {
            f"{name}/{part}_{end}.txt": text(pair[side] for pair in corpus.train(number)[place :: len(texts)])
            for place, part in enumerate(texts)
            for side, end in enumerate((chinese, "en"))
        }
    return archives


def _opus100(corpus: Corpus) -> Archives:
    archives, root = {}, "opus-100-corpus/v1.0"
    for language in OPUS_LANGUAGES:
        name, ours = "-".join(sorted(("en", language))), corpus.of(language, "en")
        home = f"{root}/supervised/{name}/opus.{name}"
        members = ours.sides(f"{home}-train", ours.train())
        if language != "yo":
            members |= ours.sides(f"{home}-dev", ours.held_out(0)) | ours.sides(f"{home}-test", ours.held_out(1)[:4])
        archives[f"opus-100-corpus-{name}-v1.0.tar.gz"] = members
    zero_shot = corpus.sides(f"{root}/zero-shot/de-fr/opus.de-fr-test", corpus.held_out(2)[:4])
    return {**archives, "opus-100-corpus-zeroshot-v1.0.tar.gz": zero_shot}


def _iwslt14(corpus: Corpus) -> Archives:
    talk = ["<url>http://127.0.0.1/</url>", "<talkid>1</talkid>", "<keywords>own</keywords>", "<title>A title</title>"]
    pairs, members = corpus.train() + corpus.train(1), {}
    for side, language in enumerate(corpus.languages):
        members[f"de-en/train.tags.de-en.{language}"] = text([*talk, *(pair[side] for pair in pairs)])
        for number, part in enumerate(("TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012")):
            segments = [pair[side] for pair in corpus.held_out(number)[:3]]
            lines = [f'<seg id="{place}"> {segment} </seg>' for place, segment in enumerate(segments, start=1)]
            members[f"de-en/IWSLT14.{part}.de-en.{language}.xml"] = text(["<refset>", "<doc>", *lines, "</doc>"])
    return {"de-en.tgz": members}


def _nist(corpus: Corpus) -> Archives:
    files = corpus.sides("train", corpus.train())
    for number, name in enumerate(NIST_TESTS):
        pairs = corpus.held_out(number)
        files[f"{name}.zh"] = text(pair[0] for pair in pairs)
        for reference in range(4):
            # The first word of each reference is its own.
            files[f"{name}.en{reference}"] = text(f"Ref{reference} {pair[1]}" for pair in pairs)
    return files


def _tatoeba(corpus: Corpus) -> Archives:
    pairs = [pair for number in range(4) for pair in corpus.train(number)]
    rows = [
        f"{english.strip()}\t{german.strip()}\tCC-BY 2.0" for english, german in pairs if english and german.strip()
    ]
    return {"deu-eng.zip": {"deu.txt": text(rows), "_about.txt": b"** Info **\n"}}


def _mixed(corpus: Corpus) -> Archives:
    plain = ("news-test2008", "newssyscomb2009", *(f"newstest{year}" for year in range(2009, 2014)))
    german, dev = corpus.of("de", "en"), {}
    for number, name in enumerate(plain, start=2):
        dev |= german.sides(f"dev/{name}", german.held_out(number))
    for number, year in enumerate(range(2014, 2019), start=9):
        dev |= german.sgm(f"dev/newstest{year}-deen", number)
    return {**_tatoeba(corpus), **_multi30k(corpus), "dev.tgz": dev}


def _multi30k(corpus: Corpus) -> Archives:
    sets = {"val": 0, "test_2016_flickr": 1, "test_2017_flickr": 20, "test_2018_flickr": 21}
    archives = corpus.sides("train", corpus.train() + corpus.train(1), end=".gz")
    for name, number in sets.items():
        archives |= corpus.sides(name, corpus.held_out(number), end=".gz")
    return archives


#: Recipe -> languages, and what makes its archives.
_RECIPES: dict[str, tuple[str, str, Callable[[Corpus], Archives]]] = {
    "wmt14_en_de": ("de", "en", _wmt14),
    "wmt14_en_fr": ("fr", "en", _wmt14_en_fr),
    "wmt15_cs_en": ("cs", "en", _wmt15_cs_en),
    "wmt18_zh_en": ("zh", "en", _wmt18_zh_en),
    "opus100": ("de", "fr", _opus100),
    "iwslt14_de_en": ("de", "en", _iwslt14),
    "nist_zh_en": ("zh", "en", _nist),
    "tatoeba_de_en": ("en", "de", _tatoeba),
    "multi30k": ("en", "de", _multi30k),
    "mixed_de_en": ("en", "de", _mixed),
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
