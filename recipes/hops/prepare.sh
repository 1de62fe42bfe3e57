#!/usr/bin/env bash
# A made corpus where depth counts: sentences that describe a chain, and how many steps of it to follow.
#   bash recipes/hops/prepare.sh
# Environment: see recipes/lib/recipe.sh.
RECIPE=hops
SENTENCES=${SENTENCES:-400000}  # for training
HELD_OUT=${HELD_OUT:-1000}      # of the validation set, and of the test set of each number of steps
CORPUS_SEED=${CORPUS_SEED:-1}   # of the generator
. "$(dirname "${BASH_SOURCE[0]}")/../lib/recipe.sh"
for name in SENTENCES HELD_OUT CORPUS_SEED; do
  case ${!name} in *[!0-9]*) die "$name=${!name} is not a whole number" ;; esac
done
for name in SENTENCES HELD_OUT; do
  [ "${!name}" -ge 1 ] || die "$name=${!name} is not a whole number of at least 1"
done
. "$LIB/prepare.sh"
languages pairs answer
settings SENTENCES HELD_OUT CORPUS_SEED
space 1

VALIDS=(valid)
TESTS=(k1 k2 k3 k4 k5 k6 k7 k8)
if ! made "$DATA"; then
  say "drawing $SENTENCES sentences"
  "$PYTHON" "$LIB/../hops/generate.py" --output "$SCRATCH" --train "$SENTENCES" --held-out "$HELD_OUT" \
    --seed "$CORPUS_SEED"
  # The words are the vocabulary, so text, tokens and subwords are the same.
  for part in train valid "${TESTS[@]/#/test.}"; do
    for language in "$SOURCE" "$TARGET"; do
      for name in "$part" "$part.raw" "bpe.$part"; do cp "$SCRATCH/$part.$language" "$TEXT/$name.$language"; done
    done
  done
fi
binarize -- --joined-dictionary
