#!/usr/bin/env bash
# Tatoeba, German-English: some 170,000 pairs of short sentences, packed by manythings.org.
#   bash recipes/tatoeba_de_en/prepare.sh
# Environment: see recipes/lib/recipe.sh and recipes/lib/prepare.sh.
RECIPE=tatoeba_de_en
MERGES=${MERGES:-8000}        # joint BPE
HELD_OUT=${HELD_OUT:-2000}    # sentences of the validation set, and of the test set
MAX_WORDS=${MAX_WORDS:-100}
. "$(dirname "${BASH_SOURCE[0]}")/../lib/recipe.sh"
. "$LIB/prepare.sh"
languages de en
settings MERGES HELD_OUT MAX_WORDS
space 1

split_tatoeba
tatoeba_pair train
train_text --tokenize moses --longest "$MAX_WORDS"
tatoeba_pair valid
valid_text --tokenize moses
tatoeba_pair test
test_text tatoeba --tokenize moses

joint_bpe
binarize "$TEXT/bpe.codes" -- --joined-dictionary
