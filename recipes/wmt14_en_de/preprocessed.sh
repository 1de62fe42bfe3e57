# The text that Vaswani et al. (2017) tokenized and split into subwords, taken as it is; sourced by prepare.sh with
# PREPROCESSED and DOWNLOADS set to the folder of the unpacked wmt16_en_de.tar.gz. README.md says where that is found.
# shellcheck shell=bash
settings PREPROCESSED
space 4

subwords=tok.bpe.32000
train=train.tok.clean.bpe.32000
test=newstest2014
if ! made "$DATA"; then
  for name in {"$train","newstest2012.$subwords","newstest2013.$subwords","$test.$subwords","$test.tok","$test"}.{en,de} \
    bpe.32000; do
    [ -s "$PREPROCESSED/$name" ] ||
      die "PREPROCESSED=$PREPROCESSED has no $name, or it is empty; take it from wmt16_en_de.tar.gz"
  done
  # The subwords are translated, and the two other forms are what translations are compared with.
  lines=$(awk 'END { print NR }' "$PREPROCESSED/$test.$subwords.de")
  for name in "$test.tok.de" "$test.de"; do
    [ "$(awk 'END { print NR }' "$PREPROCESSED/$name")" = "$lines" ] ||
      die "PREPROCESSED=$PREPROCESSED has other numbers of lines in $name and $test.$subwords.de ($lines);" \
        "take both from wmt16_en_de.tar.gz"
  done
fi

pair "$train.en" "$train.de"
text bpe.train --clean --keep-equal
for year in 2012 2013; do pair "newstest$year.$subwords.en" "newstest$year.$subwords.de"; done
text bpe.valid
pair "newstest2013.$subwords.en" "newstest2013.$subwords.de"
text bpe.valid1
pair "$test.$subwords.en" "$test.$subwords.de"
text "bpe.test.$test"
pair "$test.tok.en" "$test.tok.de"
text "test.$test" --tokenize joined
pair "$test.en" "$test.de"
text "test.$test.raw"
# shellcheck disable=SC2034  # binarize reads it
VALIDS=(valid valid1)
# shellcheck disable=SC2034
TESTS=("$test")

if ! made "$TEXT/bpe.codes"; then
  cp "$PREPROCESSED/bpe.32000" "$SCRATCH/bpe.codes"
  finish "$SCRATCH/bpe.codes" "$TEXT/bpe.codes"
fi
# Moses' tokenizer without normalization of punctuation and without -a; some characters became entities of HTML.
echo "--tokenizer moses --moses-no-dash-splits --bpe subword_nmt" >"$SCRATCH/text_options.txt"
binarize "$TEXT/bpe.codes" "$SCRATCH/text_options.txt" -- --joined-dictionary --nwordssrc 32768 --nwordstgt 32768
