# Steps of prepare.sh, sourced by every recipe after recipe.sh: from archives to binarized data. Each step does only
# what is missing, and its files appear when they are whole.
#
# Environment: DISK       GB that are asked for before anything is fetched, for a smaller corpus than the recipe's
#              DOWNLOADS  where archives are kept (default: WORK/downloads); one folder can serve all recipes
# shellcheck shell=bash
case $WORK in *[,:]*) die "WORK=$WORK has a comma or a colon in it, which divide lists for fairseq; give another" ;; esac
DOWNLOADS=${DOWNLOADS:-$WORK/downloads}
case $DOWNLOADS in -*) DOWNLOADS=./$DOWNLOADS ;; esac
TEXT=$WORK/text
DATA=$WORK/data-bin
FOLDER=WORK  # the variable that names it, for messages
UNFINISHED=$WORK/.data-bin.fairseq-unfinished  # a name that no user gives
SCRATCH=$WORK/.text.fairseq-unfinished
mkdir -p "$TEXT" "$DOWNLOADS" || die "WORK=$WORK and DOWNLOADS=$DOWNLOADS must be folders that can be written"

# Two at once would write the same files.
exec 9>>"$WORK/.preparing"
lock 9 || die "WORK=$WORK is being prepared by another process; wait for it, or give another WORK"

rm -rf "$SCRATCH"
mkdir "$SCRATCH"
trap 'rm -rf "$SCRATCH"' EXIT

[ -z "${PREPROCESSED:-}" ] || [ "$RECIPE" = wmt14_en_de ] ||
  die "PREPROCESSED=$PREPROCESSED is for the recipe wmt14_en_de only; leave it out"

. "$LIB/fetch.sh"

declare -a PAIRS=() VALIDS=() TESTS=()

# languages SOURCE TARGET: the only direction of this recipe.
languages() {
  [ "${SOURCE:-$1} ${TARGET:-$2}" = "$1 $2" ] ||
    die "SOURCE=${SOURCE:-$1} TARGET=${TARGET:-$2}: this recipe knows $1 to $2 only; leave SOURCE and TARGET out"
  SOURCE=$1 TARGET=$2
}

# settings NAME...: the variables that decide what is made. What was made with others is not mixed with this.
settings() {
  local name now="" before after remedy
  for name in "$@"; do
    case $name in
      LANGUAGES | PREPROCESSED | MODEL | MONOLINGUAL | METHOD | TAG | OPTIONS | *_DIGEST) ;; # texts
      RATIO | COPIED) [[ ${!name} =~ ^[0-9]+(\.[0-9]+)?$ ]] || die "$name=${!name} is not a number" ;;
      *) case ${!name} in '' | *[!0-9]*) die "$name=${!name} is not a whole number" ;; esac ;;
    esac
  done
  for name in RECIPE SOURCE TARGET "$@"; do now+="$name=${!name}"$'\n'; done
  if [ -e "$TEXT/settings" ]; then
    [ "$now" != "$(cat "$TEXT/settings")"$'\n' ] || return 0
    # What was fetched serves all settings. What was trained belongs to the data that go.
    remedy="remove $TEXT and $DATA"
    [ ! -e "$WORK/systems" ] || remedy+=" and $WORK/systems"
    # Lines of one side only.
    before=$(grep -vxFf <(printf %s "$now") "$TEXT/settings" | paste -s -d ' ' -) || true
    after=$(printf %s "$now" | grep -vxFf "$TEXT/settings" | paste -s -d ' ' -) || true
    die "$FOLDER=$WORK was prepared with ${before:-other settings}" \
      "and not with ${after:-these} as now: give another $FOLDER, or $remedy"
  elif [ -e "$DATA" ] || [ -n "$(ls -A "$TEXT")" ]; then
    die "WORK=$WORK has a folder text or data-bin that prepare.sh did not make; give another WORK"
  else
    printf %s "$now" >"$SCRATCH/settings"
    finish "$SCRATCH/settings" "$TEXT/settings"
  fi
}

# space GIGABYTES: what the whole preparation takes, unless it has been done or DISK says otherwise.
space() {
  local free
  set -- "${DISK:-$1}"
  [ -e "$DATA" ] && return
  free=$(df -Pk "$WORK" | awk 'NR == 2 { print int($4 / 1000000) }')
  [ "$free" -ge "$1" ] || die "about $1 GB are needed in $WORK, and $free GB are free there; set WORK to a larger disk"
}

# pair SOURCE TARGET: two texts in DOWNLOADS that the next call of text is made of.
pair() { PAIRS+=(--pair "$DOWNLOADS/$1" "$DOWNLOADS/$2"); }

# split_tatoeba: the German-English pairs of Tatoeba as a training, a validation and a test set, both of HELD_OUT pairs.
split_tatoeba() {
  fetch deu-eng.zip
  made "$TEXT/split/train.de" "$TEXT/split/train.en" && return
  "$PYTHON" "$LIB/split_pairs.py" --pair "$DOWNLOADS/deu-eng.zip!deu.txt@2" "$DOWNLOADS/deu-eng.zip!deu.txt@1" \
    --languages de en --held-out "$HELD_OUT" --output "$TEXT/split"
}

# tatoeba_pair SET: train, valid or test of it, for the next call of text.
tatoeba_pair() { PAIRS+=(--pair "$TEXT/split/$1.de" "$TEXT/split/$1.en"); }

# text NAME [OPTION...]: cleaned and tokenized text from the pairs so far.
text() {
  local name=$1
  shift
  if ! made "$TEXT/$name.$SOURCE" "$TEXT/$name.$TARGET"; then
    say "$name: cleaning and tokenizing"
    "$PYTHON" "$LIB/clean_corpus.py" --languages "$SOURCE" "$TARGET" "${PAIRS[@]}" --output "$TEXT/$name" \
      --jobs "$JOBS" "$@"
  fi
  PAIRS=()
}

train_text() { text train --clean "$@"; }
# valid_text [OPTION...]: there may be several validation sets; the first is fairseq's subset valid, the next valid1.
valid_text() {
  local name=valid
  [ ${#VALIDS[@]} = 0 ] || name+=${#VALIDS[@]}
  VALIDS+=("$name")
  text "$name" --raw "$@"
}
# test_text NAME [OPTION...]: there may be several test sets; the first is fairseq's subset test, the next test1.
test_text() {
  TESTS+=("$1")
  text "test.$1" --raw "${@:2}"
}

made() {
  local file
  for file in "$@"; do [ -e "$file" ] || return 1; done
}

# joint_bpe: subwords of both languages together, and all text split into them.
joint_bpe() {
  local part
  if ! made "$TEXT/bpe.codes"; then
    say "learning $MERGES merge operations"
    subword_nmt -c 'from subword_nmt.subword_nmt import main; main()' learn-joint-bpe-and-vocab \
      --input "$TEXT/train.$SOURCE" "$TEXT/train.$TARGET" --symbols "$MERGES" \
      --output "$SCRATCH/bpe.codes" --write-vocabulary "$SCRATCH/bpe.vocab.$SOURCE" "$SCRATCH/bpe.vocab.$TARGET"
    for part in "vocab.$SOURCE" "vocab.$TARGET" codes; do finish "$SCRATCH/bpe.$part" "$TEXT/bpe.$part"; done
  fi
  for part in train "${VALIDS[@]}" "${TESTS[@]/#/test.}"; do split_text "$part" "$TEXT"; done
}

# sentencepiece_each: subwords of each language by itself, from text that is not tokenized.
sentencepiece_each() {
  local language part
  for language in "$SOURCE" "$TARGET"; do
    made "$TEXT/pieces.$language.model" && continue
    say "learning $VOCABULARY subwords of $language"
    "$PYTHON" "$LIB/pieces.py" learn "$TEXT/train.$language" --size "$VOCABULARY" --output "$TEXT/pieces.$language"
  done
  for part in train "${VALIDS[@]}" "${TESTS[@]/#/test.}"; do split_text "$part" "$TEXT"; done
}

# split_text PART FOLDER: PART into the subwords that a FOLDER of text has learned; training pairs of more than LONGEST
# are left out. Subwords that occur less than THRESHOLD times in the training text of their language are split further.
split_text() {
  local part=$1 learned=$2 language
  local -a limits
  made "$TEXT/bpe.$part.$SOURCE" "$TEXT/bpe.$part.$TARGET" && return
  say "$part: splitting into subwords"
  for language in "$SOURCE" "$TARGET"; do
    if made "$learned/pieces.$language.model"; then
      "$PYTHON" "$LIB/pieces.py" apply "$learned/pieces.$language.model" "$TEXT/$part.$language" --jobs "$JOBS" \
        --output "$SCRATCH/$part.$language"
      continue
    fi
    limits=()
    [ "${THRESHOLD:-0}" = 0 ] ||
      limits=(--vocabulary "$learned/bpe.vocab.$language" --vocabulary-threshold "$THRESHOLD")
    subword_nmt -m subword_nmt.apply_bpe --codes "$learned/bpe.codes" "${limits[@]}" \
      --input "$TEXT/$part.$language" --output "$SCRATCH/$part.$language"
    # Its processes cannot say that they have failed.
    [ "$(wc -l <"$TEXT/$part.$language")" = "$(wc -l <"$SCRATCH/$part.$language")" ] ||
      die "subword-nmt apply-bpe has lost lines of $TEXT/$part.$language, for lack of space perhaps; run it again"
  done
  if [ "$part" = train ] && [ "${LONGEST:-0}" != 0 ]; then
    PAIRS=(--pair "$SCRATCH/train.$SOURCE" "$SCRATCH/train.$TARGET")
    text bpe.train --clean --keep-equal --longest "$LONGEST"
  else
    for language in "$SOURCE" "$TARGET"; do finish "$SCRATCH/$part.$language" "$TEXT/bpe.$part.$language"; done
  fi
}

# subword_nmt PROGRAM OPTION...: with JOBS processes, which the command subword-nmt has for learning only.
subword_nmt() {
  PYTHONSAFEPATH=1 TMPDIR=$SCRATCH "$PYTHON" "$@" --num-workers "$JOBS" >"$TEXT/subword-nmt.log" 2>&1 ||
    die "subword-nmt ended with status $?; the end of $TEXT/subword-nmt.log:
$(tail -n 3 "$TEXT/subword-nmt.log")"
}

# listed PREFIX NAME...: the names with the prefix, and commas between them. In "${NAMES[@]/#/$PREFIX}" bash 5.2 takes a &
# in the prefix for something else.
listed() {
  local prefix=$1 name list=
  shift
  for name in "$@"; do list+=,$prefix$name; done
  printf '%s\n' "${list#,}"
}

# binarize MODEL... -- OPTION...: fairseq's data, with the subword models and the list of test sets beside it.
binarize() {
  local -a models=()
  local tests valids
  made "$DATA" && return
  while [ "$1" != -- ]; do
    models+=("$1")
    shift
  done
  tests=$(listed "$TEXT/bpe.test." "${TESTS[@]}")
  valids=$(listed "$TEXT/bpe." "${VALIDS[@]}")
  say "binarizing"
  rm -rf "$UNFINISHED"
  "$PYTHON" "$LIB/preprocess.py" --source-lang "$SOURCE" --target-lang "$TARGET" \
    --trainpref "$TEXT/bpe.train" --validpref "$valids" --testpref "$tests" --destdir "$UNFINISHED" \
    --workers "$JOBS" "${@:2}" >"$TEXT/preprocess.log" 2>&1 ||
    die "fairseq-preprocess ended with status $?; the end of $TEXT/preprocess.log:
$(tail -n 3 "$TEXT/preprocess.log")"
  [ ${#models[@]} = 0 ] || cp "${models[@]}" "$UNFINISHED/"
  printf '%s\n' "${TESTS[@]}" >"$UNFINISHED/tests.txt"
  "$PYTHON" "$LIB/record_text.py" "$RECIPE" "$UNFINISHED" "$SOURCE" "$TARGET"
  finish "$UNFINISHED" "$DATA"
  say "done: $DATA"
}
