#!/usr/bin/env bash
# Adds translated monolingual text to the training data of a prepared recipe (Sennrich et al., 2016):
#   bash recipes/back_translate.sh RECIPE MODEL TEXT... [-- options of fairseq-depthwise translate]
# MODEL translates from the recipe's target language to its source language; TEXT is in the target language, as files or
# members of archives (recipes/lib/text_streams.py). The result is another folder for the same recipe's train.sh and
# evaluate.sh. Each step does only what is missing, so the same command goes on after an interruption.
#
# Environment: WORK      the prepared recipe (default: runs/RECIPE)
#              MIXED     the new folder (default: WORK-back-translated)
#              METHOD    beam, or sampling (Edunov et al., 2018)        (default: beam)
#              BEAM      of METHOD=beam (default: 5)
#              RAY       HOST:PORT or auto: translate on that Ray cluster; here: on this machine's cores by Ray
#                        (default: one process)
#              TAG       the first token of each synthetic source sentence (Caswell et al., 2019); empty for none
#                        (default: <BT>)
#              UPSAMPLE  how often the parallel text is in the mixture (default: 1)
#              LONGEST   subwords of a side of a synthetic pair (default: 250)
#              RATIO     of its sides' lengths (default: 1.5)
#              COPIED    share of words that both sides have at which a pair counts as copied (default: 0.5)
# What else the environment decides: recipes/README.md.
# shellcheck source-path=SCRIPTDIR
RECIPE=${1:-}
. "$(dirname "${BASH_SOURCE[0]}")/lib/recipe.sh"
[ "$RECIPE" != opus100 ] || die "this recipe has many languages; back-translation is for recipes of one pair"
shift
declare -a TEXTS=()
MODEL=${1:-}
[ $# = 0 ] || shift
while [ $# -gt 0 ] && [ "$1" != -- ]; do
  TEXTS+=("$1")
  shift
done
[ $# = 0 ] || shift
[ -n "$MODEL" ] && [ ${#TEXTS[@]} -gt 0 ] ||
  die "give a model and at least one text: back_translate.sh $RECIPE MODEL TEXT... [-- OPTION...]"
[ -e "${MODEL%%:*}" ] || die "the model ${MODEL%%:*} does not exist"

PARALLEL=$WORK
METHOD=${METHOD:-beam} BEAM=${BEAM:-5} TAG=${TAG-<BT>} UPSAMPLE=${UPSAMPLE:-1}
LONGEST=${LONGEST:-250} RATIO=${RATIO:-1.5} COPIED=${COPIED:-0.5}
case $METHOD in beam | sampling) ;; *) die "METHOD=$METHOD is neither beam nor sampling" ;; esac
case $TAG in *[[:space:]]*) die "TAG=$TAG has a space in it; give one token" ;; esac
for name in BEAM UPSAMPLE LONGEST; do
  case ${!name} in 0 | *[!0-9]*) die "$name=${!name} is not a whole number of at least 1" ;; esac
done
for name in RATIO COPIED; do
  [[ ${!name} =~ ^[0-9]+(\.[0-9]+)?$ ]] || die "$name=${!name} is not a number"
done
languages=$(find "$PARALLEL/data-bin" -name 'train.*-*.*.idx' 2>/dev/null | sed 's:.*/train\.::; s:\..*::' | sort -u)
[[ $languages =~ ^[a-z]+-[a-z]+$ ]] ||
  die "WORK=$PARALLEL has no training data of one pair; run bash recipes/$RECIPE/prepare.sh first"
SOURCE=${languages%-*} TARGET=${languages#*-}
WORK=${MIXED:-$PARALLEL-back-translated}
case $WORK in -*) WORK=./$WORK ;; esac
[ "$(realpath -m "$WORK")" != "$(realpath -m "$PARALLEL")" ] || die "MIXED=$WORK is WORK itself; give another folder"
DOWNLOADS=${DOWNLOADS:-$PARALLEL/downloads}
# shellcheck source=lib/prepare.sh
. "$LIB/prepare.sh"
# shellcheck disable=SC2034  # settings reads it by its name
MONOLINGUAL=${TEXTS[*]}
settings MODEL MONOLINGUAL METHOD BEAM TAG UPSAMPLE LONGEST RATIO COPIED

case $RECIPE in iwslt14_de_en) tokens=moses-lower ;; wmt18_zh_en) tokens=unsegmented ;; *) tokens=moses ;; esac
# shellcheck disable=SC2034  # split_text reads it
THRESHOLD=$(sed -n 's/^THRESHOLD=//p' "$PARALLEL/text/settings")

# shellcheck disable=SC2153  # TEXT is the folder
if ! made "$TEXT/mono.$TARGET"; then
  "$PYTHON" "$LIB/back_translation.py" clean "${TEXTS[@]}" --longest "$LONGEST" --output "$TEXT/mono.$TARGET"
fi
if ! made "$TEXT/mono.$SOURCE"; then
  declare -a how=(--beam "$BEAM")
  [ "$METHOD" = beam ] || how=(--sampling --beam 1)
  case ${RAY:-} in '') ;; here) how+=(--ray) ;; *) how+=(--ray "$RAY") ;; esac
  # Without this script's lock: what Ray leaves for a while after a kill would hold it.
  "$PYTHON" -m fairseq_depthwise translate "$MODEL" "$TEXT/mono.$TARGET" --source-lang "$TARGET" \
    --target-lang "$SOURCE" --output "$TEXT/mono.$SOURCE" "${how[@]}" "$@" 9>&-
fi

# Synthetic pairs become subwords as the training text did, and follow the parallel text. Their source begins with a tag,
# so that the model can tell both kinds.
PAIRS=(--pair "$TEXT/mono.$SOURCE" "$TEXT/mono.$TARGET")
text synthetic --clean --keep-equal --copied "$COPIED" --tokenize "$tokens"
split_text synthetic "$PARALLEL/text"
PAIRS=(--pair "$TEXT/bpe.synthetic.$SOURCE" "$TEXT/bpe.synthetic.$TARGET")
text bpe.kept --clean --keep-equal --longest "$LONGEST" --ratio "$RATIO"
for language in "$SOURCE" "$TARGET"; do
  made "$TEXT/bpe.train.$language" && continue
  for _ in $(seq "$UPSAMPLE"); do cat "$PARALLEL/text/bpe.train.$language"; done >"$SCRATCH/mixed"
  mark=
  [ "$language" = "$TARGET" ] || mark=${TAG:+$TAG }
  MARK=$mark awk '{ print ENVIRON["MARK"] $0 }' "$TEXT/bpe.kept.$language" >>"$SCRATCH/mixed"
  finish "$SCRATCH/mixed" "$TEXT/bpe.train.$language"
done

# Validation and test sets are those of the parallel data, and so are the dictionaries, but for the tag.
if ! made "$DATA"; then
  say "binarizing"
  for file in "$PARALLEL"/text/test.*; do [ -e "$TEXT/${file##*/}" ] || cp -p "$file" "$TEXT/"; done
  "$PYTHON" "$LIB/back_translation.py" dictionaries "$PARALLEL/data-bin/dict.$SOURCE.txt" \
    "$PARALLEL/data-bin/dict.$TARGET.txt" --tag="$TAG" --output "$SCRATCH/dict.$SOURCE.txt" "$SCRATCH/dict.$TARGET.txt"
  rm -rf "$UNFINISHED"
  "$PYTHON" -m fairseq_cli.preprocess --source-lang "$SOURCE" --target-lang "$TARGET" --trainpref "$TEXT/bpe.train" \
    --srcdict "$SCRATCH/dict.$SOURCE.txt" --tgtdict "$SCRATCH/dict.$TARGET.txt" --destdir "$UNFINISHED" \
    --workers "$JOBS" >"$TEXT/preprocess.log" 2>&1 ||
    die "fairseq-preprocess ended with status $?; the end of $TEXT/preprocess.log:
$(tail -n 3 "$TEXT/preprocess.log")"
  find "$PARALLEL/data-bin" -maxdepth 1 -type f ! -name 'train.*' ! -name 'dict.*' ! -name '*.log' \
    -exec cp -p {} "$UNFINISHED/" \;
  finish "$UNFINISHED" "$DATA"
  say "done: $DATA; WORK=$WORK bash recipes/train.sh $RECIPE SYSTEM trains with it"
fi
