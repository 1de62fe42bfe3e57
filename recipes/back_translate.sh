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
# shellcheck source=lib/new_pairs.sh
. "$LIB/new_pairs.sh"
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

METHOD=${METHOD:-beam} BEAM=${BEAM:-5} TAG=${TAG-<BT>} UPSAMPLE=${UPSAMPLE:-1}
LONGEST=${LONGEST:-250} RATIO=${RATIO:-1.5} COPIED=${COPIED:-0.5}
case $METHOD in beam | sampling) ;; *) die "METHOD=$METHOD is neither beam nor sampling" ;; esac
case $TAG in *[[:space:]]*) die "TAG=$TAG has a space in it; give one token" ;; esac
require_numbers "BEAM UPSAMPLE LONGEST" "RATIO COPIED"
new_pairs_for back-translated
# Synthetic pairs are split as the training text was; without its subwords all translations would be for nothing.
made "$PARALLEL/text/bpe.codes" || made "$PARALLEL/text/pieces.$SOURCE.model" "$PARALLEL/text/pieces.$TARGET.model" ||
  die "WORK=$PARALLEL has no subwords, neither text/bpe.codes nor text/pieces.$SOURCE.model; back-translation needs a" \
    "recipe that learns them, and its folder text"
translation_settings "$@"
# shellcheck disable=SC2034  # settings reads them by their names
MONOLINGUAL=${TEXTS[*]} MONOLINGUAL_DIGEST=$(digest "${TEXTS[@]}")
settings MODEL MODEL_DIGEST MONOLINGUAL MONOLINGUAL_DIGEST PARALLEL_DIGEST OPTIONS OPTIONS_DIGEST METHOD BEAM TAG \
  UPSAMPLE LONGEST RATIO COPIED

case $RECIPE in iwslt14_de_en) tokens=moses-lower ;; wmt18_zh_en) tokens=unsegmented ;; *) tokens=moses ;; esac
[ ! -e "$PARALLEL/data-bin/text_options.txt" ] || tokens=moses-escaped # PREPROCESSED text of wmt14_en_de
# shellcheck disable=SC2034  # split_text reads it
THRESHOLD=$(sed -n 's/^THRESHOLD=//p' "$PARALLEL/text/settings")

# shellcheck disable=SC2153  # TEXT is the folder
if ! made "$TEXT/mono.$TARGET"; then
  # The training text of IWSLT is in lower case, and so is what its models translate.
  declare -a lower=()
  [ "$RECIPE" != iwslt14_de_en ] || lower=(--lower)
  "$PYTHON" "$LIB/back_translation.py" clean "${TEXTS[@]}" --longest "$LONGEST" "${lower[@]}" \
    --output "$TEXT/mono.$TARGET"
fi
if ! made "$TEXT/mono.$SOURCE"; then
  declare -a how=(--beam "$BEAM")
  [ "$METHOD" = beam ] || how=(--sampling --beam 1)
  translate "$MODEL" "$TEXT/mono.$TARGET" --source-lang "$TARGET" --target-lang "$SOURCE" \
    --output "$TEXT/mono.$SOURCE" "${how[@]}" "$@"
fi

# Synthetic pairs become subwords as the training text did, and follow the parallel text. Their source begins with a tag,
# so that the model can tell both kinds.
PAIRS=(--pair "$TEXT/mono.$SOURCE" "$TEXT/mono.$TARGET")
text synthetic --clean --keep-equal --copied "$COPIED" --tokenize "$tokens"
split_text synthetic "$PARALLEL/text"
# shellcheck disable=SC2034  # text reads it
PAIRS=(--pair "$TEXT/bpe.synthetic.$SOURCE" "$TEXT/bpe.synthetic.$TARGET")
text bpe.kept --clean --keep-equal --longest "$LONGEST" --ratio "$RATIO"
add_to_parallel "$TEXT/bpe.kept" "$UPSAMPLE" "$TAG"
