#!/usr/bin/env bash
# WMT14 English-French: 36 million pairs of 40, from their public homes to binarized data.
#   bash recipes/wmt14_en_fr/prepare.sh
# Environment: see recipes/lib/recipe.sh and recipes/lib/prepare.sh.
RECIPE=wmt14_en_fr
MERGES=${MERGES:-32000}    # joint BPE (depth-wise LSTM; the paper on shallow-to-deep training: 40000)
THRESHOLD=${THRESHOLD:-8}  # rarer subwords are split further (the depth-wise LSTM's authors' program)
LONGEST=${LONGEST:-256}    # subwords of a sentence (depth-wise LSTM)
MAX_WORDS=${MAX_WORDS:-200}  # shallow-to-deep training
RATIO=${RATIO:-1.5}          # of the sides' lengths: what makes the papers' 36 million of 40.8
. "$(dirname "${BASH_SOURCE[0]}")/../lib/recipe.sh"
. "$LIB/prepare.sh"
languages en fr
settings MERGES THRESHOLD LONGEST MAX_WORDS RATIO
space 70

fetch training-parallel-europarl-v7.tgz
fetch training-parallel-commoncrawl.tgz
fetch training-parallel-un.tgz \
  sha256:29141b5c1eba149a94f7a59d3b1a834b2e47fe0f8758d68dcd77a3d3f497ee47 \
  http://www.statmt.org/wmt13/training-parallel-un.tgz
fetch training-parallel-nc-v9.tgz
fetch training-giga-fren.tar \
  sha256:3ff8319f6919393520559bfbc7ad6a747ec81b3abc7be9993b338d4b017b4d9a \
  http://www.statmt.org/wmt10/training-giga-fren.tar
fetch dev.tgz
fetch test-full.tgz

for part in training-parallel-europarl-v7.tgz!training/europarl-v7 \
  training-parallel-commoncrawl.tgz!commoncrawl training-parallel-un.tgz!un/undoc.2000 \
  training-parallel-nc-v9.tgz!training/news-commentary-v9; do
  pair "$part.fr-en.en" "$part.fr-en.fr"
done
pair 'training-giga-fren.tar!giga-fren.release2.fixed.en.gz' 'training-giga-fren.tar!giga-fren.release2.fixed.fr.gz'
train_text --tokenize moses --longest "$MAX_WORDS" --ratio "$RATIO"
for year in 2012 2013; do pair "dev.tgz!dev/newstest$year.en" "dev.tgz!dev/newstest$year.fr"; done
valid_text --tokenize moses
pair 'test-full.tgz!test-full/newstest2014-fren-src.en.sgm' 'test-full.tgz!test-full/newstest2014-fren-ref.fr.sgm'
test_text newstest2014 --tokenize moses

joint_bpe
binarize "$TEXT/bpe.codes" -- --joined-dictionary
