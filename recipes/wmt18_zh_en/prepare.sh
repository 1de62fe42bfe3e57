#!/usr/bin/env bash
# WMT18 Chinese-English: News Commentary, the UN corpus and, where it is at hand, CWMT; to binarized data.
#   bash recipes/wmt18_zh_en/prepare.sh
# CWMT=0 leaves the CWMT corpora out, which are fetched by hand: 15 million pairs instead of 24.
# Chinese is not segmented into words: SentencePiece splits raw text, so that raw text can be translated as it is.
# Environment: see recipes/lib/recipe.sh and recipes/lib/prepare.sh.
RECIPE=wmt18_zh_en
CWMT=${CWMT:-1}
VOCABULARY=${VOCABULARY:-32000}  # entries of each side (the paper: 32k merge operations for English-German)
LONGEST=${LONGEST:-256}          # subwords of a sentence
. "$(dirname "${BASH_SOURCE[0]}")/../lib/recipe.sh"
. "$LIB/prepare.sh"
languages zh en
settings CWMT VOCABULARY LONGEST
space 50

fetch training-parallel-nc-v13.tgz \
  sha256:17992b7e919cfb754c60f4e754148bc23b80706ad0ed7b34150831a554b40c91 \
  http://data.statmt.org/wmt18/translation-task/training-parallel-nc-v13.tgz
fetch UNv1.0.en-zh.tar.gz sha256:6f9c6401d5f0a49b20661324570d99fb86822d82f974748a361e19b9b886dd49 \
  https://storage.googleapis.com/tfds-data/downloads/uncorpus/UNv1.0.en-zh.tar.gz
fetch dev.tgz
fetch wmt18-test.tgz

pair 'training-parallel-nc-v13.tgz!training-parallel-nc-v13/news-commentary-v13.zh-en.zh' \
  'training-parallel-nc-v13.tgz!training-parallel-nc-v13/news-commentary-v13.zh-en.en'
pair 'UNv1.0.en-zh.tar.gz!en-zh/UNv1.0.en-zh.zh' 'UNv1.0.en-zh.tar.gz!en-zh/UNv1.0.en-zh.en'
if [ "$CWMT" = 1 ]; then
  while read -r name sum; do
    fetch "$name.zip" "sha256:$sum" "by-hand: fetch ftp://cwmt-wmt:cwmt-wmt@nlp.nju.edu.cn/parallel/$name.zip (an \
account that its owners made public) and put it into $DOWNLOADS, or set CWMT=0 to train without these corpora"
    pair "$name.zip!$name/*_c[hn].txt" "$name.zip!$name/*_en.txt"
  done <<'CORPORA'
casia2015 c939f1528f96c419e9bbffb9caad869616a969e7704ffac896e245a02aff59a9
casict2011 606adc0ccc5d8fc7c47f8589991286616342a1a379a571ce3038918731ae0182
casict2015 eef8e25b297c1aff12ab24719247d3588e756d7a4e2c30d4d34fcb4d05ab1050
datum2015 654afce6731485c40ce856514ab80cd2bfd836126bcaf48cdb911ebc32b021a4
datum2017 737455c139596f4abf3b1da73bc38932b3ef9534549328eff47d867e29950ed2
neu2017 9f63020b6990cde85f5387b745e3ae37f1d6a49848b90a49bae28219fb65395f
CORPORA
fi
train_text --tokenize unsegmented
pair 'dev.tgz!dev/newstest2017-zhen-src.zh.sgm' 'dev.tgz!dev/newstest2017-zhen-ref.en.sgm'
valid_text --tokenize unsegmented
pair 'wmt18-test.tgz!test/newstest2018-zhen-src.zh.sgm' 'wmt18-test.tgz!test/newstest2018-zhen-ref.en.sgm'
test_text newstest2018 --tokenize unsegmented

sentencepiece_each
binarize "$TEXT/pieces.zh.model" "$TEXT/pieces.en.model" -- \
  --srcdict "$TEXT/pieces.zh.dict.txt" --tgtdict "$TEXT/pieces.en.dict.txt"
