#!/usr/bin/env bash
# WMT14 English-German: 4.5 million pairs, from their public homes to binarized data.
#   bash recipes/wmt14_en_de/prepare.sh
#   PREPROCESSED=folder bash recipes/wmt14_en_de/prepare.sh     the tokens of Vaswani et al. instead (README.md)
# Environment: see recipes/lib/recipe.sh and recipes/lib/prepare.sh.
RECIPE=wmt14_en_de
MERGES=${MERGES:-32000}    # joint BPE (all three papers)
THRESHOLD=${THRESHOLD:-8}  # rarer subwords are split further (the depth-wise LSTM's authors' program)
LONGEST=${LONGEST:-256}    # subwords of a sentence (depth-wise LSTM)
MAX_WORDS=${MAX_WORDS:-0}  # of a side; no limit
RATIO=${RATIO:-0}          # of the sides' lengths; no limit
PREPROCESSED=${PREPROCESSED:-}
. "$(dirname "${BASH_SOURCE[0]}")/../lib/recipe.sh"
if [ -n "$PREPROCESSED" ]; then
  [ -d "$PREPROCESSED" ] || die "PREPROCESSED=$PREPROCESSED is not a folder; set it to the unpacked wmt16_en_de.tar.gz"
  PREPROCESSED=$(realpath -- "$PREPROCESSED")
  DOWNLOADS=$PREPROCESSED
fi
. "$LIB/prepare.sh"
languages en de

if [ -n "$PREPROCESSED" ]; then
  # shellcheck source=../wmt14_en_de/preprocessed.sh
  . "$(dirname "${BASH_SOURCE[0]}")/preprocessed.sh"
  exit
fi
settings MERGES THRESHOLD LONGEST MAX_WORDS RATIO
space 15

fetch training-parallel-europarl-v7.tgz
fetch training-parallel-commoncrawl.tgz
fetch training-parallel-nc-v9.tgz
fetch dev.tgz
fetch test-full.tgz

for part in training-parallel-europarl-v7.tgz!training/europarl-v7 \
  training-parallel-commoncrawl.tgz!commoncrawl training-parallel-nc-v9.tgz!training/news-commentary-v9; do
  pair "$part.de-en.en" "$part.de-en.de"
done
train_text --tokenize moses --longest "$MAX_WORDS" --ratio "$RATIO"
for year in 2012 2013; do pair "dev.tgz!dev/newstest$year.en" "dev.tgz!dev/newstest$year.de"; done
valid_text --tokenize moses
# The paper on multi-unit Transformers validates on 2013 alone: subset valid1.
pair dev.tgz!dev/newstest2013.en dev.tgz!dev/newstest2013.de
valid_text --tokenize moses
pair 'test-full.tgz!test-full/newstest2014-deen-src.en.sgm' 'test-full.tgz!test-full/newstest2014-deen-ref.de.sgm'
test_text newstest2014 --tokenize moses

joint_bpe
binarize "$TEXT/bpe.codes" -- --joined-dictionary
