#!/usr/bin/env bash
# Scores a trained system: bash recipes/iwslt14_de_en/evaluate.sh SYSTEM
# What the environment decides: recipes/README.md.
RECIPE=iwslt14_de_en
. "$(dirname "${BASH_SOURCE[0]}")/../lib/recipe.sh"
exec "$PYTHON" "$LIB/evaluate.py" "$RECIPE" "$@"
