#!/usr/bin/env bash
# WMT15 Czech-English: 15 million pairs, most of them CzEng 1.0, which its owners give to those who register.
#   bash recipes/wmt15_cs_en/prepare.sh
# CZENG=0 leaves it out: 1 million pairs, not comparable with the paper.
# Environment: see recipes/lib/recipe.sh and recipes/lib/prepare.sh.
RECIPE=wmt15_cs_en
CZENG=${CZENG:-1}
MERGES=${MERGES:-32000}    # joint BPE (depth-wise LSTM)
THRESHOLD=${THRESHOLD:-8}  # rarer subwords are split further (the depth-wise LSTM's authors' program)
LONGEST=${LONGEST:-256}    # subwords of a sentence
MAX_WORDS=${MAX_WORDS:-0}  # of a side; no limit
RATIO=${RATIO:-0}          # of the sides' lengths; no limit
. "$(dirname "${BASH_SOURCE[0]}")/../lib/recipe.sh"
. "$LIB/prepare.sh"
languages cs en
settings CZENG MERGES THRESHOLD LONGEST MAX_WORDS RATIO
space 30

fetch training-parallel-europarl-v7.tgz
fetch training-parallel-commoncrawl.tgz
fetch training-parallel-nc-v10.tgz \
  sha256:11e053e7ea29e87e69a1ad05e61cb559820947ecec144ea8c1d6cf05017c9602 \
  http://www.statmt.org/wmt15/training-parallel-nc-v10.tgz
fetch dev.tgz
fetch wmt15-test.tgz

pair 'training-parallel-europarl-v7.tgz!training/europarl-v7.cs-en.cs' \
  'training-parallel-europarl-v7.tgz!training/europarl-v7.cs-en.en'
pair 'training-parallel-commoncrawl.tgz!commoncrawl.cs-en.cs' 'training-parallel-commoncrawl.tgz!commoncrawl.cs-en.en'
pair 'training-parallel-nc-v10.tgz!news-commentary-v10.cs-en.cs' \
  'training-parallel-nc-v10.tgz!news-commentary-v10.cs-en.en'
if [ "$CZENG" = 1 ]; then
  for part in 0 1 2 3 4 5 6 7 8 9; do
    name=data-plaintext-format.$part.tar
    fetch "$name" none "by-hand: register at https://ufal.mff.cuni.cz/czeng/czeng10, fetch data-plaintext-format.0.tar
to .9.tar and put them into $DOWNLOADS, or set CZENG=0 to train without them"
    # Its lines are: id, score, Czech, English.
    pair "$name!data.plaintext-format/*train.gz@3" "$name!data.plaintext-format/*train.gz@4"
  done
fi
train_text --tokenize moses --longest "$MAX_WORDS" --ratio "$RATIO"
pair 'dev.tgz!dev/newstest2013.cs' 'dev.tgz!dev/newstest2013.en'
valid_text --tokenize moses
pair 'wmt15-test.tgz!test/newstest2015-csen-src.cs.sgm' 'wmt15-test.tgz!test/newstest2015-csen-ref.en.sgm'
test_text newstest2015 --tokenize moses

joint_bpe
binarize "$TEXT/bpe.codes" -- --joined-dictionary
