#!/usr/bin/env bash
# Trains a system: bash recipes/iwslt14_de_en/train.sh SYSTEM [options of fairseq-train]; --list names all systems.
# Several nodes, SLURM, and what else the environment decides: recipes/README.md.
RECIPE=iwslt14_de_en
. "$(dirname "${BASH_SOURCE[0]}")/../lib/recipe.sh"
. "$LIB/train.sh"
