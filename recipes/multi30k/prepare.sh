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

fetch_part() { # PART LANGUAGE MD5
  [ "$2" = "$SOURCE" ] || [ "$2" = "$TARGET" ] || return 0
  fetch "$1.$2.gz" "md5:$3" "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw/$1.$2.gz"
}
fetch_part train en 0065d13af80720a55ca8153d126e6627
fetch_part train de 81ff90b99829c0cd4b1b587d394afd39
fetch_part train fr 6cb767741dcad3931f966fefbc05203f
fetch_part train cs d9a5fc268917725a2b0efce3a0cc8607
fetch_part val en 2b69aa9253948ac9f67e94917272dd40
fetch_part val de 6e0e229eb049e3fc99a1ef02fb2d5f91
fetch_part val fr 93fc564584b7e5ba410c761ea5a1c682
fetch_part val cs 83cdc082f646b769095615384cf5c0ca
fetch_part test_2016_flickr en ff2c0fcb4893a13bd73414306bc250ae
fetch_part test_2016_flickr de efd67d314d98489b716b145475101932
fetch_part test_2016_flickr fr 08dc7cd4a662f31718412de95ca9bfe3
fetch_part test_2016_flickr cs 3104872229daa1bef3b401d44dd2220b

pair "train.$SOURCE.gz" "train.$TARGET.gz"
train_text --tokenize moses
pair "val.$SOURCE.gz" "val.$TARGET.gz"
valid_text --tokenize moses
pair "test_2016_flickr.$SOURCE.gz" "test_2016_flickr.$TARGET.gz"
test_text test_2016_flickr --tokenize moses

joint_bpe
binarize "$TEXT/bpe.codes" -- --joined-dictionary
