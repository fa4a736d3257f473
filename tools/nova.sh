#!/usr/bin/env bash
# Nova itself, to run the driver, to apply nova_patches to and to test; sourced by test.sh.
#
# Its virtual environment and its release are fetched once, and kept in the cache.

NOVA_VERSION=34.0.0
NOVA_REQUIREMENTS=(
    "nova==$NOVA_VERSION" "SQLAlchemy<2.1" openstack-placement stestr oslotest ddt requests-mock
    wsgi-intercept testscenarios testresources pycodestyle python-memcached psycopg2-binary PyMySQL
    osprofiler hacking python-barbicanclient
)

# Nova's own tests of what is nearest to the patch.
declare -A PATCHES_TESTS=(
    [functional]='^nova\.tests\.functional\.test_boot_from_volume\b'
)

# Nova's own tests of what the patch touches.
declare -A NOVA_TESTS=(
    [unit]='^nova\.tests\.unit\.(compute\.test_(api|shelve)|api\.openstack\.compute\.test_servers)\b'
    [functional]='^nova\.tests\.functional\.(libvirt\.test_live_migration|'
)
NOVA_TESTS[functional]+='test_(boot_from_volume|multiattach|server_rescue|server_migrations|servers))\b'

# Sets NOVA_BIN: programs of the virtual environment.
make_nova_venv() {
    make_environment nova-venv "nova $NOVA_VERSION" "$(printf '%s\n' "${NOVA_REQUIREMENTS[@]}")" \
        "${NOVA_REQUIREMENTS[@]}" || return
    NOVA_BIN=$ENVIRONMENT/bin
}

# Sets NOVA_RELEASE: the unpacked release, which nothing changes.
make_nova_release() {
    local archive=$VIRTMAN_CACHE/nova-$NOVA_VERSION.tar.gz
    NOVA_RELEASE=$VIRTMAN_CACHE/nova-$NOVA_VERSION
    [ ! -e "$NOVA_RELEASE/PKG-INFO" ] || return 0
    "$NOVA_BIN/pip" download --quiet --disable-pip-version-check --no-deps --no-binary nova \
        --dest "$VIRTMAN_CACHE" "nova==$NOVA_VERSION" &&
        rm -rf "$NOVA_RELEASE.part" && mkdir "$NOVA_RELEASE.part" &&
        tar -xf "$archive" --no-same-owner --strip-components=1 -C "$NOVA_RELEASE.part" &&
        mv "$NOVA_RELEASE.part" "$NOVA_RELEASE"
}

prepare_nova() {
    (
        flock 9
        make_nova_venv && make_nova_release
    ) 9> "$VIRTMAN_CACHE/nova.lock" && make_nova_venv && make_nova_release
    export NOVA_RELEASE
}

# Makes the folder $1: the release as it is, with what our package adds to it.
extend_nova() {
    rm -rf "$1"
    mkdir -p "$(dirname "$1")"
    cp -r "$NOVA_RELEASE" "$1" && cp -r "$TOP/nova/virt/virtman" "$1/nova/virt/"
}

# Makes the folder $1: the same with the patch.
patch_nova() {
    extend_nova "$1" && "$TOP/nova_patches/apply" "$1"
}

# Runs the tests of nova in the folder $1 that are of the kind $2 and match $3. The rest are
# settings of the environment.
nova_tests() {
    local folder=$1 kind=$2 regex=$3
    shift 3
    (
        cd "$folder" &&
            env -u PYTHONDONTWRITEBYTECODE "$@" PYTHONPATH="$TOP" PATH="$NOVA_BIN:$PATH" \
                OS_NOVA_DISABLE_EVENTLET_PATCHING=true \
                stestr --test-path "./nova/tests/$kind" run --concurrency 2 "$regex"
    )
}

# Runs those that match $2, of whatever kind; there may be none of one.
matching_nova_tests() {
    fixture_tests driver "$1-released" "$2"
    fixture_tests series "$1" "$2"
    nova_tests "$1" unit "$2"
    nova_tests "$1" functional "$2"
    true
}

# Runs our tests in nova's fixtures, those in tests/$1 that match $3 if it is there, with the nova in the
# folder $2.
fixture_tests() {
    local repository=$TOP/.stestr/$1 folder=$2
    mkdir -p "$repository"
    (
        cd "$folder" &&
            PYTHONPATH="$folder:$TOP" PATH="$NOVA_BIN:$PATH" OS_NOVA_DISABLE_EVENTLET_PATCHING=true \
                stestr --repo-url "$repository" --test-path "$TOP/tests/$1" --top-dir "$TOP" \
                run --concurrency 2 "${@:3}"
    )
}

# Runs our tests that need a nova, in its environment.
own_nova_tests() {
    PATH="$NOVA_BIN:$PATH" stestr --repo-url "$1" --test-path tests/nova --top-dir tests/nova run
}
