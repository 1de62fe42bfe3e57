#!/usr/bin/env bash
# Scores a trained system: bash recipes/wmt14_en_fr/evaluate.sh SYSTEM
# What the environment decides: recipes/README.md.
RECIPE=wmt14_en_fr
. "$(dirname "${BASH_SOURCE[0]}")/../lib/recipe.sh"
exec "$PYTHON" "$LIB/evaluate.py" "$RECIPE" "$@"
