"""Checks before `make setup`: the interpreter, its headers, a compiler; prints one sentence if one is missing.

python tools/check_setup.py VENV [--same-python]
"""

import os
import shutil
import subprocess
import sys
import sysconfig

# This has to run on the interpreter that is too old, so it keeps to what every Python 3 has.
FIRST, BELOW = (3, 10), (3, 14)


def problem(venv, same_python):  # type: ignore[no-untyped-def]  # for Pythons before annotations
    """Return the first problem, or None; with ``same_python`` also an existing ``venv`` of another version."""
    version = sys.version_info[:2]
    if not FIRST <= version < BELOW:
        return "{} is Python {}.{}; use 3.10 to 3.13: make setup PYTHON=python3.12".format(sys.executable, *version)
    existing = os.path.join(venv, "bin", "python")
    if same_python and os.path.exists(existing):
        asked = [existing, "-c", "import sys; print('{}.{}'.format(*sys.version_info))"]
        existing_version = subprocess.run(asked, stdout=subprocess.PIPE, text=True, check=False).stdout.strip()
        if existing_version and existing_version != "{}.{}".format(*version):
            return "{} is made with Python {}, and PYTHON is {}.{}; make clean, then again".format(
                venv, existing_version, *version
            )
    if not os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h")):
        return "Python's headers are missing, and fairseq has compiled parts; install python{}.{}-dev".format(*version)
    if not any(shutil.which(name) for name in (os.environ.get("CXX") or "c++", "g++", "clang++")):
        return "there is no C++ compiler, and fairseq has compiled parts; install g++"
    return None


if __name__ == "__main__":
    message = problem(sys.argv[1], "--same-python" in sys.argv)
    if message:
        sys.exit("make: " + message)
