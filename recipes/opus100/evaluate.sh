#!/usr/bin/env bash
# Scores a trained system in all directions: bash recipes/opus100/evaluate.sh SYSTEM
# What the environment decides: recipes/README.md.
RECIPE=opus100
. "$(dirname "${BASH_SOURCE[0]}")/../lib/recipe.sh"
exec "$PYTHON" "$LIB/evaluate_languages.py" "$@"
