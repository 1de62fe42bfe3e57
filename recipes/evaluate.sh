#!/usr/bin/env bash
# Scores a trained system of a recipe: bash recipes/evaluate.sh RECIPE SYSTEM
# What the environment decides: recipes/README.md.
# shellcheck source-path=SCRIPTDIR
RECIPE=${1:-}
. "$(dirname "${BASH_SOURCE[0]}")/lib/recipe.sh"
case $RECIPE in opus100) program=evaluate_languages.py ;; *) program=evaluate.py ;; esac
exec "$PYTHON" "$LIB/$program" "$@"
