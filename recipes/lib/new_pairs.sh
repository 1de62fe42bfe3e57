# What back_translate.sh and distill.sh share, sourced after recipe.sh: a prepared recipe's folder, its training pairs
# with others in their place or after them, and a new folder for the same recipe's train.sh and evaluate.sh.
#
# Environment: MIXED  the new folder
#              RAY    HOST:PORT or auto: translate on that Ray cluster; here: on this machine's cores by Ray
# shellcheck shell=bash
[ "$RECIPE" != opus100 ] || die "this recipe has many languages; new pairs are for recipes of one pair"

# require_numbers WHOLE OTHER: names of variables that are whole numbers of at least 1, and others that are numbers.
require_numbers() {
  local name
  for name in $1; do
    case ${!name} in 0 | *[!0-9]*) die "$name=${!name} is not a whole number of at least 1" ;; esac
  done
  for name in $2; do
    [[ ${!name} =~ ^[0-9]+(\.[0-9]+)?$ ]] || die "$name=${!name} is not a number"
  done
}

# new_pairs_for ENDING: PARALLEL is the recipe's folder, WORK from now on the new one, by default with ENDING.
new_pairs_for() {
  local languages
  PARALLEL=$WORK
  languages=$(find "$PARALLEL/data-bin" -name 'train.*-*.*.idx' 2>/dev/null | sed 's:.*/train\.::; s:\..*::' | sort -u)
  [[ $languages =~ ^[a-z]+-[a-z]+$ ]] ||
    die "WORK=$PARALLEL has no training data of one pair; run bash recipes/$RECIPE/prepare.sh first"
  SOURCE=${languages%-*} TARGET=${languages#*-}
  WORK=${MIXED:-$PARALLEL-$1}
  case $WORK in -*) WORK=./$WORK ;; esac
  [ "$(realpath -m "$WORK")" != "$(realpath -m "$PARALLEL")" ] || die "MIXED=$WORK is WORK itself; give another folder"
  DOWNLOADS=${DOWNLOADS:-$PARALLEL/downloads}
  # shellcheck source=prepare.sh
  . "$LIB/prepare.sh"
  # shellcheck disable=SC2034  # settings names it
  FOLDER=MIXED
}

# translation_settings OPTION...: what the translations are made of, for settings: MODEL's files, the recipe's data, and
# options of translate with the files that they name.
# shellcheck disable=SC2034  # settings reads them by their names
translation_settings() {
  local word
  local -a models files=()
  IFS=: read -ra models <<<"$MODEL"
  OPTIONS=$*
  for word in "$@"; do [ ! -e "$word" ] || files+=("$word"); done
  MODEL_DIGEST=$(digest "${models[@]}")
  PARALLEL_DIGEST=$(digest "$PARALLEL/data-bin")
  OPTIONS_DIGEST=$(digest "${files[@]}")
}

# digest TEXT...: one digest of files, folders, and archives of texts; what does not exist is an error.
digest() { "$PYTHON" "$LIB/made_of.py" "$@"; }

# translate MODEL FILE OPTION...: as fairseq-depthwise translate, where RAY says.
translate() {
  local -a where=()
  case ${RAY:-} in '') ;; here) where=(--ray) ;; *) where=(--ray "$RAY") ;; esac
  # Without this script's lock: what Ray leaves for a while after a kill would hold it.
  PYTHONSAFEPATH=1 "$PYTHON" -m fairseq_depthwise translate "$@" "${where[@]}" 9>&-
}

# add_to_parallel PAIRS TIMES [TAG]: the training data are the parallel text so many times, then the pairs, whose sources
# begin with the tag. Validation and test sets are those of the parallel data, and so are the dictionaries, but for it.
add_to_parallel() {
  local pairs=$1 times=$2 tag=${3:-} language file mark
  made "$DATA" && return
  for language in "$SOURCE" "$TARGET"; do
    made "$TEXT/bpe.train.$language" && continue
    : >"$SCRATCH/mixed"
    for _ in $(seq "$times"); do cat "$PARALLEL/text/bpe.train.$language"; done >>"$SCRATCH/mixed"
    mark=
    [ "$language" = "$TARGET" ] || mark=${tag:+$tag }
    MARK=$mark awk '{ print ENVIRON["MARK"] $0 }' "$pairs.$language" >>"$SCRATCH/mixed"
    finish "$SCRATCH/mixed" "$TEXT/bpe.train.$language"
  done
  say "binarizing"
  for file in "$PARALLEL"/text/{test,bpe.test,bpe.valid}.*; do
    [ ! -e "$file" ] || [ -e "$TEXT/${file##*/}" ] || cp -p "$file" "$TEXT/"
  done
  "$PYTHON" "$LIB/back_translation.py" dictionaries "$PARALLEL/data-bin/dict.$SOURCE.txt" \
    "$PARALLEL/data-bin/dict.$TARGET.txt" --tag="$tag" --output "$SCRATCH/dict.$SOURCE.txt" "$SCRATCH/dict.$TARGET.txt"
  rm -rf "$UNFINISHED"
  "$PYTHON" "$LIB/preprocess.py" --source-lang "$SOURCE" --target-lang "$TARGET" --trainpref "$TEXT/bpe.train" \
    --srcdict "$SCRATCH/dict.$SOURCE.txt" --tgtdict "$SCRATCH/dict.$TARGET.txt" --destdir "$UNFINISHED" \
    --workers "$JOBS" >"$TEXT/preprocess.log" 2>&1 ||
    die "fairseq-preprocess ended with status $?; the end of $TEXT/preprocess.log:
$(tail -n 3 "$TEXT/preprocess.log")"
  find "$PARALLEL/data-bin" -maxdepth 1 -type f ! -name 'train.*' ! -name 'dict.*' ! -name '*.log' \
    -exec cp -p {} "$UNFINISHED/" \;
  finish "$UNFINISHED" "$DATA"
  say "done: $DATA; WORK=$WORK bash recipes/train.sh $RECIPE SYSTEM trains with it"
}
