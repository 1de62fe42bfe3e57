#!/usr/bin/env bash
# German-English from three places, some 218,000 pairs: Tatoeba, Multi30k, and the news test sets of 2008 to 2018.
#   bash recipes/mixed_de_en/prepare.sh
# Environment: see recipes/lib/recipe.sh and recipes/lib/prepare.sh.
RECIPE=mixed_de_en
MERGES=${MERGES:-10000}       # joint BPE
HELD_OUT=${HELD_OUT:-2000}    # sentences of Tatoeba in the validation set, and in the test set
MAX_WORDS=${MAX_WORDS:-100}
. "$(dirname "${BASH_SOURCE[0]}")/../lib/recipe.sh"
. "$LIB/prepare.sh"
languages de en
settings MERGES HELD_OUT MAX_WORDS
space 2

split_tatoeba
for part in train val test_2016_flickr; do
  for language in de en; do fetch "$part.$language.gz"; done
done
fetch dev.tgz

news() { pair "dev.tgz!dev/$1.de" "dev.tgz!dev/$1.en"; }
news_sgm() { pair "dev.tgz!dev/newstest$1-deen-src.de.sgm" "dev.tgz!dev/newstest$1-deen-ref.en.sgm"; }

tatoeba_pair train
pair train.de.gz train.en.gz
for name in news-test2008 newssyscomb2009 newstest2009 newstest2010 newstest2011 newstest2012; do news "$name"; done
for year in 2015 2016 2017 2018; do news_sgm "$year"; done
train_text --tokenize moses --longest "$MAX_WORDS"
tatoeba_pair valid
pair val.de.gz val.en.gz
news newstest2013
valid_text --tokenize moses
tatoeba_pair test
pair test_2016_flickr.de.gz test_2016_flickr.en.gz
news_sgm 2014
test_text mixed --tokenize moses

joint_bpe
binarize "$TEXT/bpe.codes" -- --joined-dictionary
