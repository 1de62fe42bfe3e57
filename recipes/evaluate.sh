#!/usr/bin/env bash
# Scores a trained system of a recipe: bash recipes/evaluate.sh RECIPE SYSTEM
# Measures how fast it decodes:        bash recipes/evaluate.sh RECIPE SYSTEM --speed
# What the environment decides: recipes/README.md.
# shellcheck source-path=SCRIPTDIR
RECIPE=${1:-}
. "$(dirname "${BASH_SOURCE[0]}")/lib/recipe.sh"
exec "$PYTHON" "$LIB/evaluate.py" "$@"
