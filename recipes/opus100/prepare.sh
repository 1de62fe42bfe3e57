#!/usr/bin/env bash
# OPUS-100: English to and from 99 languages, 55 million pairs, for one model in all 198 directions.
#   bash recipes/opus100/prepare.sh
#   LANGUAGES="de fr zh" bash recipes/opus100/prepare.sh      fewer languages
# Environment: see recipes/lib/recipe.sh and recipes/lib/prepare.sh.
RECIPE=opus100
SOURCE=en  # of every file's name; a direction is chosen in training and translation
TARGET=xx
VOCABULARY=${VOCABULARY:-64000}  # of one SentencePiece model for all languages
SAMPLE=${SAMPLE:-20000000}       # sentences that it is learned from, at most
LONGEST=${LONGEST:-256}          # subwords of a sentence
LANGUAGES=${LANGUAGES:-}         # all, unless it says otherwise
. "$(dirname "${BASH_SOURCE[0]}")/../lib/recipe.sh"
. "$LIB/prepare.sh"
HERE=$(dirname "${BASH_SOURCE[0]}")
settings VOCABULARY SAMPLE LONGEST LANGUAGES
space 60

# The pairs of LANGUAGES, with the checksums of their archives.
chosen=$(grep -v '^#' "$HERE/archives.txt" | while read -r pair sum _; do
  language=${pair/-en/} language=${language/en-/}
  case " ${LANGUAGES:-$language} " in *" $language "*) echo "$language $pair $sum" ;; esac
done)
for language in $LANGUAGES; do
  grep -q "^$language " <<<"$chosen" || die "LANGUAGES has $language, which is not in OPUS-100; recipes/opus100/archives.txt has all"
done

home=https://object.pouta.csc.fi/OPUS-100/v1.0
while read -r _ pair sum; do
  fetch "opus-100-corpus-$pair-v1.0.tar.gz" "sha256:$sum" "$home/opus-100-corpus-$pair-v1.0.tar.gz"
done <<<"$chosen"
fetch opus-100-corpus-zeroshot-v1.0.tar.gz \
  sha256:241de5bf4eb382017337f3ffb23cdf319c971585b5f679da9a420f23a5c2ed8f \
  "$home/opus-100-corpus-zeroshot-v1.0.tar.gz"

# Cleaned text of every language; five of them have no dev and test sets.
mkdir -p "$TEXT/zero-shot"
while read -r language pair _; do
  TARGET=$language
  for part in train dev test; do
    case "$part $language" in dev\ an | dev\ dz | dev\ hy | dev\ mn | dev\ yo | test\ an | test\ dz | test\ hy | test\ mn | test\ yo) continue ;; esac
    inside="opus-100-corpus-$pair-v1.0.tar.gz!opus-100-corpus/v1.0/supervised/$pair/opus.$pair-$part"
    pair "$inside.en" "$inside.$language"
    if [ "$part" = train ]; then text "train.en-$language" --clean; else text "$part.en-$language"; fi
  done
done <<<"$chosen"

# Test sets between two languages that are never seen together in training, where both were chosen.
for pair in ar-de ar-fr ar-nl ar-ru ar-zh de-fr de-nl de-ru de-zh fr-nl fr-ru fr-zh nl-ru nl-zh ru-zh; do
  SOURCE=${pair%-*} TARGET=${pair#*-}
  if grep -q "^$SOURCE " <<<"$chosen" && grep -q "^$TARGET " <<<"$chosen"; then
    inside="opus-100-corpus-zeroshot-v1.0.tar.gz!opus-100-corpus/v1.0/zero-shot/$pair/opus.$pair-test"
    pair "$inside.$SOURCE" "$inside.$TARGET"
    text "zero-shot/$pair"
  fi
done
SOURCE=en

if ! made "$TEXT/pieces.model"; then
  say "learning $VOCABULARY subwords of all languages"
  "$PYTHON" "$LIB/pieces.py" learn "$TEXT"/train.en-*.* --size "$VOCABULARY" --sample "$SAMPLE" \
    --output "$TEXT/pieces"
fi
made "$DATA" && exit

# Each pair by itself, JOBS of them at a time; what is whole is not done again.
export LIB PYTHON TEXT DATA LONGEST
binarize_pair() {
  set -euo pipefail
  local language=$1 part side name
  local -a parts=()
  [ ! -e "$TEXT/binarized/en-$language" ] || return 0
  for part in train dev test; do
    name=$part.en-$language
    [ -e "$TEXT/$name.en" ] || continue
    case $part in train) parts+=(--trainpref) ;; dev) parts+=(--validpref) ;; test) parts+=(--testpref) ;; esac
    parts+=("$TEXT/pieces.$name")
    for side in en "$language"; do
      [ -e "$TEXT/pieces.$name.$side" ] ||
        "$PYTHON" "$LIB/pieces.py" apply "$TEXT/pieces.model" "$TEXT/$name.$side" --jobs 1 \
          --output "$TEXT/pieces.$name.$side"
    done
    [ "$part" = train ] || continue
    [ -e "$TEXT/short.$name.en" ] && [ -e "$TEXT/short.$name.$language" ] ||
      "$PYTHON" "$LIB/clean_corpus.py" --languages en "$language" --jobs 1 --clean --keep-equal --longest "$LONGEST" \
        --pair "$TEXT/pieces.$name.en" "$TEXT/pieces.$name.$language" --output "$TEXT/short.$name"
    parts[1]=$TEXT/short.$name
  done
  mkdir -p "$TEXT/binarized"
  rm -rf "$TEXT/binarized/en-$language.tmp"
  "$PYTHON" "$LIB/preprocess.py" --source-lang en --target-lang "$language" "${parts[@]}" --workers 1 \
    --srcdict "$TEXT/pieces.dict.txt" --tgtdict "$TEXT/pieces.dict.txt" --destdir "$TEXT/binarized/en-$language.tmp" \
    >"$TEXT/binarized/en-$language.log" 2>&1 || {
    tail -n 3 "$TEXT/binarized/en-$language.log" >&2
    return 1
  }
  finish "$TEXT/binarized/en-$language.tmp" "$TEXT/binarized/en-$language"
}
export -f binarize_pair finish
say "splitting into subwords and binarizing"
cut -d ' ' -f 1 <<<"$chosen" | xargs -P "$JOBS" -I '{}' bash -c 'binarize_pair {}' || die "a pair could not be binarized"

rm -rf "$UNFINISHED"
mkdir "$UNFINISHED"
while read -r language _; do
  ln "$TEXT/binarized/en-$language"/*.bin "$TEXT/binarized/en-$language"/*.idx "$UNFINISHED/"
  cp "$TEXT/pieces.dict.txt" "$UNFINISHED/dict.$language.txt"
done <<<"$chosen"
cp "$TEXT/pieces.dict.txt" "$UNFINISHED/dict.en.txt"
cp "$TEXT/pieces.model" "$UNFINISHED/"
{ echo en && cut -d ' ' -f 1 <<<"$chosen"; } >"$UNFINISHED/languages.txt"
cut -d ' ' -f 1 <<<"$chosen" | sed 's/.*/en-&,&-en/' | paste -s -d , - >"$UNFINISHED/pairs.txt"
mapfile -t every <"$UNFINISHED/languages.txt"
"$PYTHON" "$LIB/record_text.py" "$RECIPE" "$UNFINISHED" "${every[@]}"
finish "$UNFINISHED" "$DATA"
say "done: $DATA"
