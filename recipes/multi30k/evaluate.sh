#!/usr/bin/env bash
# Scores a trained system: bash recipes/multi30k/evaluate.sh SYSTEM
# What the environment decides: recipes/README.md.
RECIPE=multi30k
. "$(dirname "${BASH_SOURCE[0]}")/../lib/recipe.sh"
exec "$PYTHON" "$LIB/evaluate.py" "$RECIPE" "$@"
