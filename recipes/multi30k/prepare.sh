#!/usr/bin/env bash
# Multi30k, task 1: 29,000 descriptions of pictures in English, German, French and Czech.
#   bash recipes/multi30k/prepare.sh
#   TARGET=fr bash recipes/multi30k/prepare.sh      SOURCE and TARGET are two of en, de, fr, cs
# Environment: see recipes/lib/recipe.sh and recipes/lib/prepare.sh.
RECIPE=multi30k
SOURCE=${SOURCE:-en}
TARGET=${TARGET:-de}
MERGES=${MERGES:-6000}  # joint BPE
. "$(dirname "${BASH_SOURCE[0]}")/../lib/recipe.sh"
for language in "$SOURCE" "$TARGET"; do
  case $language in en | de | fr | cs) ;; *) die "there is no $language in Multi30k; SOURCE and TARGET are en, de, fr or cs" ;; esac
done
[ "$SOURCE" != "$TARGET" ] || die "SOURCE and TARGET are both $SOURCE; they must be two languages"
. "$LIB/prepare.sh"
settings MERGES
space 1

TESTS_HERE=(test_2016_flickr)
[ "$SOURCE" = cs ] || [ "$TARGET" = cs ] || TESTS_HERE+=(test_2017_flickr)  # which has no Czech
TESTS_HERE+=(test_2018_flickr)
for part in train val "${TESTS_HERE[@]}"; do
  for language in "$SOURCE" "$TARGET"; do fetch "$part.$language.gz"; done
done

pair "train.$SOURCE.gz" "train.$TARGET.gz"
train_text --tokenize moses
pair "val.$SOURCE.gz" "val.$TARGET.gz"
valid_text --tokenize moses
for part in "${TESTS_HERE[@]}"; do
  pair "$part.$SOURCE.gz" "$part.$TARGET.gz"
  test_text "$part" --tokenize moses
done

joint_bpe
binarize "$TEXT/bpe.codes" -- --joined-dictionary
