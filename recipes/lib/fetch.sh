# Archives, sourced by prepare.sh: resumed where a download stopped, checked, and under their names only when whole.
#
# Environment: MIRROR            a folder or URL that has the archives (default: their public homes)
#              IGNORE_CHECKSUMS  1 takes archives that are not the published ones, if they can be read to their end
# shellcheck shell=bash

# fetch NAME CHECKSUM URL...: one archive into DOWNLOADS; the rest of NAME alone is in archives.txt.
# CHECKSUM is sha256:HEX or md5:HEX, or none where none was published: then the archive is read to its end. A URL may be
# by-hand: and a sentence that says where the file can be had.
fetch() {
  local name=$1 checksum file=$DOWNLOADS/$1 command
  local -a known
  if [ $# = 1 ]; then
    read -ra known < <(grep "^$1 " "$LIB/archives.txt") || die "recipes/lib/archives.txt has no $1"
    set -- "${known[@]}"
  fi
  checksum=$2
  mkdir -p "$DOWNLOADS"
  is_checked && return
  for command in curl "${checksum%%:*}sum"; do
    [ "$command" = nonesum ] || command -v "$command" >/dev/null || die "fetching needs the command $command; install it"
  done
  (
    # Two that fetch into one folder would write the same file.
    if ! lock 8; then
      say "waiting for another process that fetches into $DOWNLOADS"
      lock 8 wait
    fi
    is_checked && exit
    local part=$file fault remedy="Put a whole one into $DOWNLOADS, or remove it to have it fetched"
    if [ ! -e "$file" ]; then
      part=$DOWNLOADS/.$name.fairseq-unfinished remedy="It was removed; run the same command again to fetch it anew"
      get "$part" "${@:3}"
    fi
    fault=$(fault_of "$part")
    if [ -n "$fault" ]; then
      [ "$part" = "$file" ] || rm -f "$part"
      [ "$checksum" = none ] || remedy+=", with IGNORE_CHECKSUMS=1 if its owners have replaced it"
      die "$name is not what it should be: $fault. $remedy"
    fi
    [ "$part" = "$file" ] || finish "$part" "$file"
    seal >"$file.checked"
  ) 8<"$DOWNLOADS"
}

# is_checked: the file is there, and was compared with this checksum.
is_checked() {
  [ -e "$file" ] && [ -e "$file.checked" ] && [ ! "$file" -nt "$file.checked" ] &&
    [ "$(cat "$file.checked")" = "$(seal)" ]
}

# seal: what tells the file that was checked from one that took its place.
seal() { echo "$checksum $(size "$file") $(date -r "$file" +%s)"; }

# get PART URL...: from MIRROR, or from the first URL that has it.
get() {
  local url
  if [ -n "${MIRROR:-}" ] && [[ $MIRROR != *://* ]]; then
    [ -f "$MIRROR/$name" ] || die "MIRROR=$MIRROR has no file $name"
    say "copying $MIRROR/$name"
    cp -f -- "$MIRROR/$name" "$1" || die "cannot write $1"
    return
  fi
  [ -z "${MIRROR:-}" ] || set -- "$1" "${MIRROR%/}/$name"
  for url in "${@:2}"; do
    [[ $url != by-hand:* ]] || die "$file is missing and cannot be fetched: ${url#by-hand: }"
    say "fetching $url"
    download "$1" "$url" && return
  done
  die "$name cannot be fetched; what has come is kept, so run the same command again, or put the file into" \
    "$DOWNLOADS, or set MIRROR to a folder or URL that has it"
}

# download PART URL: until the file is whole, or five tries have brought nothing. curl's own --retry begins anew.
download() {
  local before code status tries=0 progress=--silent
  [ ! -t 2 ] || progress=--progress-bar
  while [ "$tries" -lt 5 ]; do
    before=$(size "$1") status=0
    code=$(curl --fail --location "$progress" --show-error --continue-at - --connect-timeout 60 --speed-limit 1 \
      --speed-time "${STALLED:-60}" --write-out '%{http_code}' --output "$1" "$2") || status=$?
    case $status,$code in
      0,* | 22,416) return ;; # 416: nothing follows what is there
      22,408 | 22,429 | 22,5*) ;;
      22,*) return 1 ;;
      23,*) die "cannot write $1; what has come is kept" ;;
      33,*) rm -f "$1" ;; # the server cannot begin in the middle
    esac
    tries=$((tries + 1))
    [ "$(size "$1")" -le "$before" ] || tries=0
    sleep $((5 * tries))
  done
  return 1
}

# fault_of FILE: what is wrong with it, if its checksum is not the published one or it cannot be read to its end.
fault_of() {
  local digest kind=${checksum%%:*} published=${checksum#*:}
  if [ "$kind" != none ] && [ "${IGNORE_CHECKSUMS:-}" != 1 ]; then
    digest=$("${kind}sum" <"$1")
    digest=${digest%% *}
    [ "$digest" = "$(tr A-F a-f <<<"$published")" ] || echo "it has the $kind $digest, and $published was published"
  elif ! is_readable "$1" 2>/dev/null; then
    echo "it is damaged or incomplete"
  fi
}

is_readable() {
  [ -s "$1" ] || return
  case $name in
    *.tgz | *.gz) gzip -t <"$1" ;;
    *.zip) PYTHONSAFEPATH=1 "$PYTHON" -c 'import sys, zipfile; sys.exit(zipfile.ZipFile(sys.argv[1]).testzip() is not None)' "$1" ;;
    # Its end is two empty blocks, which GNU tar does not ask for.
    *.tar) tar -tf "$1" >/dev/null && [ "$(tail -c 1024 "$1" | tr -d '\0' | wc -c)" -eq 0 ] ;;
  esac
}

size() { if [ -e "$1" ]; then echo $(($(wc -c <"$1"))); else echo 0; fi; }
