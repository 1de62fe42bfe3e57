# What every script of the recipes starts with. It is sourced, with RECIPE set to the recipe's name.
#
# Environment: WORK    where the recipe works (default: runs/RECIPE in the current folder)
#              PYTHON  an interpreter that has fairseq-depthwise (default: the one of make setup, else python3)
#              JOBS    processes (default: all cores)
# shellcheck shell=bash
set -euo pipefail

LIB=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

die() {
  echo "${RECIPE:-recipes}: error: $*" >&2
  exit 1
}

say() { echo "$RECIPE: $*" >&2; }

# lock DESCRIPTOR [wait]: fails if another process holds it. Python has what not every system's shell has; where the
# file system knows no locks, there are none.
lock() {
  PYTHONSAFEPATH=1 "$PYTHON" -c 'import fcntl, sys
try:
    fcntl.flock(int(sys.argv[1]), fcntl.LOCK_EX | (0 if sys.argv[2:] else fcntl.LOCK_NB))
except BlockingIOError:
    sys.exit(1)
except OSError:
    pass' "$@" 2>/dev/null
}

# finish FROM TO: a file or folder gets its name when it is on the disk.
finish() {
  find "$1" -type f -exec sync {} + 2>/dev/null || sync
  mv "$1" "$2"
}

case $RECIPE in
  '' | -* | */*) known=no ;;
  *) known=$([ -e "$LIB/../$RECIPE/README.md" ] && echo yes || echo no) ;;
esac
if [ "$known" = no ]; then
  names=$(cd "$LIB/.." && printf '%s\n' */README.md | sed 's:/.*::' | paste -s -d ' ' -)
  [ -n "$RECIPE" ] || die "no recipe is named; give one of $names"
  unknown=$RECIPE RECIPE=
  die "there is no recipe $unknown; the recipes are $names"
fi

JOBS=${JOBS:-$(getconf _NPROCESSORS_ONLN)}
WORK=${WORK:-runs/$RECIPE}
case $WORK in -*) WORK=./$WORK ;; esac  # no option of a command
if [ -z "${PYTHON:-}" ]; then
  PYTHON=$LIB/../../.venv/bin/python
  [ -x "$PYTHON" ] || PYTHON=python3
fi
export WORK PYTHON JOBS RECIPE

case $JOBS in '' | *[!0-9]*) die "JOBS=$JOBS is not a whole number of at least 1" ;; esac
[ "$JOBS" -ge 1 ] || die "JOBS=$JOBS is not a whole number of at least 1"
PYTHONSAFEPATH=1 "$PYTHON" -c 'import fairseq_compat' 2>/dev/null ||
  die "PYTHON=$PYTHON has no fairseq-depthwise; run make setup, or set PYTHON to an interpreter that has it"
