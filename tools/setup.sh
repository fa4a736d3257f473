#!/usr/bin/env bash
# What a fresh Debian 12 lacks, installed once; sourced by demo.sh and test.sh.
#
# Sets TOP (the source tree), VIRTMAN_CACHE (downloads and built images, each
# keyed by its recipe) and puts the virtual environment first on PATH.

TOP=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export VIRTMAN_CACHE=${VIRTMAN_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/virtman}

say() {
    local bold='' plain=''
    [ ! -t 2 ] || bold=$'\e[1m' plain=$'\e[0m'
    printf '%s== %s%s\n' "$bold" "$*" "$plain" >&2
}

install_packages() {
    local name missing=()
    while read -r name; do
        case $name in ''|\#*) continue ;; esac
        dpkg-query -W -f '${Status}' "$name" 2>/dev/null | grep -q 'ok installed' || missing+=("$name")
    done < "$TOP/tools/packages.txt"
    [ ${#missing[@]} -eq 0 ] && return
    if [ "$(id -u)" -ne 0 ]; then
        say "run this as root, or install: ${missing[*]}"
        return 1
    fi
    say "installing ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >&2
}

# Makes the Python environment of $2 in the cache, as $1 and a digest of the text $3; the rest tells pip
# what is in it. Sets ENVIRONMENT.
make_environment() {
    local key
    key=$(printf '%s\n' "$3" | sha256sum | cut -c1-16)
    ENVIRONMENT=$VIRTMAN_CACHE/$1-$key
    [ ! -e "$ENVIRONMENT/complete" ] || return 0
    say "building the Python environment of $2"
    rm -rf "$ENVIRONMENT"
    /usr/bin/python3 -m venv "$ENVIRONMENT" &&
        "$ENVIRONMENT/bin/pip" install --quiet --disable-pip-version-check "${@:4}" &&
        touch "$ENVIRONMENT/complete"
}

make_venv() {
    make_environment venv VirtMan "$(cat "$TOP/requirements.txt" "$TOP/test-requirements.txt")" \
        -r "$TOP/requirements.txt" -r "$TOP/test-requirements.txt" || return
    export PATH="$ENVIRONMENT/bin:/usr/local/sbin:/usr/sbin:/sbin:$PATH"
}

prepare() {
    mkdir -p "$VIRTMAN_CACHE"
    exec 9> "$VIRTMAN_CACHE/setup.lock"
    flock 9
    install_packages && make_venv
    exec 9>&-
    export PYTHONPATH="$TOP" PYTHONUNBUFFERED=1
    cd "$TOP" || return
}
