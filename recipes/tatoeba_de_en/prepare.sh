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

# One edition for good; that of manythings.org grows from month to month.
fetch deu-eng.zip none \
  https://raw.githubusercontent.com/rioyshky/translation/de48b7027f7318d77010a6e08ed928c10748c23d/deu-eng.zip \
  http://www.manythings.org/anki/deu-eng.zip
if ! made "$TEXT/split/train.de" "$TEXT/split/train.en"; then
  "$PYTHON" "$LIB/split_pairs.py" --pair "$DOWNLOADS/deu-eng.zip!deu.txt@2" "$DOWNLOADS/deu-eng.zip!deu.txt@1" \
    --languages de en --held-out "$HELD_OUT" --output "$TEXT/split"
fi

split_pair() { PAIRS=(--pair "$TEXT/split/$1.de" "$TEXT/split/$1.en"); }
split_pair train
train_text --tokenize moses --longest "$MAX_WORDS"
split_pair valid
valid_text --tokenize moses
split_pair test
test_text tatoeba --tokenize moses

joint_bpe
binarize "$TEXT/bpe.codes" -- --joined-dictionary
