#!/usr/bin/env bash
# IWSLT14 German-English: 160,000 pairs of TED talks, prepared as fairseq's own example prepares them.
#   bash recipes/iwslt14_de_en/prepare.sh
# Environment: see recipes/lib/recipe.sh and recipes/lib/prepare.sh.
RECIPE=iwslt14_de_en
MERGES=${MERGES:-10000}  # joint BPE
MAX_WORDS=${MAX_WORDS:-175}
RATIO=${RATIO:-1.5}
. "$(dirname "${BASH_SOURCE[0]}")/../lib/recipe.sh"
. "$LIB/prepare.sh"
languages de en
settings MERGES MAX_WORDS RATIO
space 1

fetch de-en.tgz none \
  http://dl.fbaipublicfiles.com/fairseq/data/iwslt14/de-en.tgz \
  https://wit3.fbk.eu/archive/2014-01/texts/de/en/de-en.tgz
talks='de-en.tgz!de-en'

pair "$talks/train.tags.de-en.de" "$talks/train.tags.de-en.en"
text talks --clean --keep-equal --tokenize moses-lower --longest "$MAX_WORDS" --ratio "$RATIO"
# Every 23rd pair is for validation.
for language in de en; do
  made "$TEXT/held-out.$language" && continue
  awk 'NR % 23 != 0' "$TEXT/talks.$language" >"$SCRATCH/left"
  finish "$SCRATCH/left" "$TEXT/left.$language"
  awk 'NR % 23 == 0' "$TEXT/talks.$language" >"$SCRATCH/held-out"
  finish "$SCRATCH/held-out" "$TEXT/held-out.$language"
done
PAIRS=(--pair "$TEXT/left.de" "$TEXT/left.en")
train_text --keep-equal --tokenize none
PAIRS=(--pair "$TEXT/held-out.de" "$TEXT/held-out.en")
valid_text --tokenize none

for part in TED.dev2010 TEDX.dev2012 TED.tst2010 TED.tst2011 TED.tst2012; do
  pair "$talks/IWSLT14.$part.de-en.de.xml" "$talks/IWSLT14.$part.de-en.en.xml"
done
test_text ted --tokenize moses-lower

joint_bpe
binarize "$TEXT/bpe.codes" --
