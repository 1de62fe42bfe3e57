#!/usr/bin/env bash
# Makes training data whose targets are a model's translations of a prepared recipe's sources (sequence-level
# distillation; Kim and Rush, 2016), from which a smaller or faster model learns more than from the references:
#   bash recipes/distill.sh RECIPE MODEL [-- options of fairseq-depthwise translate]
# MODEL is a checkpoint of the same recipe, or several with : between them, and has its dictionaries. The result is
# another folder for the same recipe's train.sh and evaluate.sh. Each step does only what is missing, so the same command
# goes on after an interruption.
#
# Environment: WORK      the prepared recipe (default: runs/RECIPE)
#              MIXED     the new folder (default: WORK-distilled)
#              BEAM      (default: 5)
#              RAY       HOST:PORT or auto: translate on that Ray cluster; here: on this machine's cores by Ray
#                        (default: one process)
#              UPSAMPLE  how often the parallel text is in the mixture, too (default: 0)
#              LONGEST   subwords of a side of a pair (default: 250)
#              RATIO     of its sides' lengths (default: 3)
# What else the environment decides: recipes/README.md.
# shellcheck source-path=SCRIPTDIR
RECIPE=${1:-}
. "$(dirname "${BASH_SOURCE[0]}")/lib/recipe.sh"
# shellcheck source=lib/new_pairs.sh
. "$LIB/new_pairs.sh"
MODEL=${2:-}
[ -n "$MODEL" ] && [ "${3:---}" = -- ] || die "give one model: distill.sh $RECIPE MODEL [-- OPTION...]"
[ -e "${MODEL%%:*}" ] || die "the model ${MODEL%%:*} does not exist"
shift $(($# < 3 ? $# : 3))

BEAM=${BEAM:-5} UPSAMPLE=${UPSAMPLE:-0} LONGEST=${LONGEST:-250} RATIO=${RATIO:-3}
require_numbers "BEAM LONGEST" "RATIO"
[[ $UPSAMPLE =~ ^[0-9]+$ ]] || die "UPSAMPLE=$UPSAMPLE is not a whole number"
new_pairs_for distilled
translation_settings "$@"
settings MODEL MODEL_DIGEST PARALLEL_DIGEST OPTIONS OPTIONS_DIGEST BEAM UPSAMPLE LONGEST RATIO

# The model reads what it was trained on, subwords, and its own are what the next one learns.
made "$TEXT/bpe.distilled.$TARGET" ||
  translate "$MODEL" "$PARALLEL/text/bpe.train.$SOURCE" --tokenized --data "$PARALLEL/data-bin" \
    --source-lang "$SOURCE" --target-lang "$TARGET" --beam "$BEAM" --output "$TEXT/bpe.distilled.$TARGET" "$@"
# shellcheck disable=SC2034  # text reads it
PAIRS=(--pair "$PARALLEL/text/bpe.train.$SOURCE" "$TEXT/bpe.distilled.$TARGET")
text bpe.kept --clean --keep-equal --longest "$LONGEST" --ratio "$RATIO"
add_to_parallel "$TEXT/bpe.kept" "$UPSAMPLE"
