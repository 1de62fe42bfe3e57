#!/usr/bin/env bash
# NIST Chinese-English: 1.25 million pairs that are bought from the LDC, and five test sets with four references.
#   LDC=/folder/with/the/files bash recipes/nist_zh_en/prepare.sh
# README.md says which files the folder needs.
# Environment: see recipes/lib/recipe.sh and recipes/lib/prepare.sh.
RECIPE=nist_zh_en
LDC=${LDC:-}
MERGES=${MERGES:-32000}  # joint BPE (the paper: for English-German)
LONGEST=${LONGEST:-256}  # subwords of a sentence
. "$(dirname "${BASH_SOURCE[0]}")/../lib/recipe.sh"
[ -d "$LDC" ] || die "LDC=$LDC is not a folder; set it to the one with the files that recipes/nist_zh_en/README.md names"
DOWNLOADS=$LDC
. "$LIB/prepare.sh"
languages zh en
settings MERGES LONGEST
space 5

sets=(mt06 mt02 mt03 mt04 mt08)  # the first is the validation set, and is tested as well
if ! made "$DATA"; then
  for name in train.{zh,en} {mt06,mt02,mt03,mt04,mt08}.{zh,en0,en1,en2,en3}; do
    [ -s "$DOWNLOADS/$name" ] || die "LDC=$LDC has no $name; recipes/nist_zh_en/README.md says what each file is"
  done
fi

pair train.zh train.en
train_text --tokenize moses

# All test sets with each of their references, and what belongs to each.
for set in "${sets[@]}"; do
  for number in 0 1 2 3; do pair "$set.zh" "$set.en$number"; done
done
text sets --raw --tokenize moses
start=0
for set in "${sets[@]}"; do
  made "$DATA" || count=$(awk 'END { print NR }' "$DOWNLOADS/$set.zh")
  for name in "test.$set" "test.$set".ref{1,2,3}; do
    for form in zh en raw.zh raw.en; do
      made "$TEXT/$name.$form" && continue
      awk -v start="$start" -v count="$count" 'NR > start && NR <= start + count' "$TEXT/sets.$form" >"$SCRATCH/part"
      finish "$SCRATCH/part" "$TEXT/$name.$form"
    done
    start=$((start + ${count:-0}))
  done
done
VALIDS=("test.${sets[0]}")
TESTS=("${sets[@]}")

joint_bpe
binarize "$TEXT/bpe.codes" --
