#!/usr/bin/env bash
# Shows how another release of nova differs in what the driver overrides and calls, and writes the
# release's file in virtman/openstack/releases.

usage() {
    cat << 'EOF'
tools/nova_release.sh VERSION [KNOWN]

VERSION     a release of nova, such as 34.0.0
KNOWN       the release to compare it with, the newest that the driver knows if left out

The exit status is 0 if nothing differs, and 1 if something does.
EOF
}

case ${1:--h} in
    -h | --help)
        usage
        exit
        ;;
esac

# shellcheck source=tools/setup.sh
. "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
# shellcheck source=tools/nova.sh
. "$(dirname "${BASH_SOURCE[0]}")/nova.sh"

# Makes the folder $2: the methods of release $1.
write_methods() {
    prepare_nova "$1" && rm -rf "$2" && "$NOVA_BIN/python" -W ignore tools/nova_release.py "$1" "$2"
}

prepare || exit
known=${2:-$(driver_releases | tail -n 1)}
folder=build/methods
write_methods "$known" "$folder/$known" && write_methods "$1" "$folder/$1" || exit 2
cd "$folder" && diff --new-file --unified=10 "$known" "$1"
