#!/usr/bin/env bash
# Nova itself, to run the driver, to apply nova_patches to and to test; sourced by test.sh and
# nova_release.sh.
#
# A release and its virtual environment are fetched once, and kept in the cache.

# What nova_patches are for.
NOVA_VERSION=34.0.0
NOVA_REQUIREMENTS=(
    "SQLAlchemy<2.1" openstack-placement stestr oslotest ddt requests-mock wsgi-intercept
    testscenarios testresources pycodestyle python-memcached psycopg2-binary PyMySQL osprofiler
    hacking python-barbicanclient
)

# The releases that the driver knows, the newest last.
driver_releases() {
    sed -nE 's/^NAME = "(.*)"$/\1/p' "$TOP"/virtman/openstack/releases/nova*.py
}

# Tests of the driver with a release that is not the newest: all of the guard and of disks, and one of
# each way that a server can go.
DRIVER_TESTS='\.(test_guard|test_backend)\.|LiveTest\.test_(guest_(and_disk|goes_on|whose)|abort)|'
DRIVER_TESTS+='MovesTest\.test_(reverted|cold|server_whose|evacuated)|'
DRIVER_TESTS+='OneNodeTest\.test_(disk_outlives|image_is|shelved|rescue|delete_while_the_agent)'

# Nova's own tests of what the driver extends, but for guests' processors and other devices than disks.
STOCK_TESTS='^nova\.tests\.unit\.virt\.libvirt\.(?!.*(get_guest_config|mdev|vgpu|numa|vtpm|cpu|secure_boot|'
STOCK_TESTS+='sev|pmem|pci|_vif|iothread|console|perf))'

# Tests of the driver that take minutes: each step of all operations, and many servers.
LONG_DRIVER_TESTS='\.(test_kills|test_live_kills|test_storm)\.'

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

# Sets NOVA_BIN: programs of the virtual environment of release $1.
make_nova_venv() {
    local requirements=("nova==$1" "${NOVA_REQUIREMENTS[@]}")
    make_environment nova-venv "nova $1" "$(printf '%s\n' "${requirements[@]}")" \
        "${requirements[@]}" || return
    NOVA_BIN=$ENVIRONMENT/bin
}

# Sets NOVA_RELEASE: the unpacked release $1, which nothing changes.
make_nova_release() {
    local archive=$VIRTMAN_CACHE/nova-$1.tar.gz
    NOVA_RELEASE=$VIRTMAN_CACHE/nova-$1
    [ ! -e "$NOVA_RELEASE/PKG-INFO" ] || return 0
    "$NOVA_BIN/pip" download --quiet --disable-pip-version-check --no-deps --no-binary nova \
        --dest "$VIRTMAN_CACHE" "nova==$1" &&
        rm -rf "$NOVA_RELEASE.part" && mkdir "$NOVA_RELEASE.part" &&
        tar -xf "$archive" --no-same-owner --strip-components=1 -C "$NOVA_RELEASE.part" &&
        mv "$NOVA_RELEASE.part" "$NOVA_RELEASE"
}

# Has release $1 be the one that all else here is about. NOVA_THREADS is whether nova-compute runs in
# native threads there; it may run in those of eventlet.
prepare_nova() {
    (
        flock 9
        make_nova_venv "$1" && make_nova_release "$1"
    ) 9> "$VIRTMAN_CACHE/nova.lock" && make_nova_venv "$1" && make_nova_release "$1" || return
    export NOVA_RELEASE
    NOVA_THREADS=false
    ! grep -q "patch(backend='threading')" "$NOVA_RELEASE/nova/cmd/compute.py" || NOVA_THREADS=true
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
                OS_NOVA_DISABLE_EVENTLET_PATCHING="$NOVA_THREADS" \
                stestr --test-path "./nova/tests/$kind" run --concurrency 2 "$regex"
    )
}

# Runs our tests in nova's fixtures, those in tests/$1, with release $2 in the folder $3. The rest
# chooses among them.
fixture_tests() {
    local repository=$TOP/.stestr/$1-$2
    mkdir -p "$repository"
    (
        cd "$3" &&
            PYTHONPATH="$3:$TOP" PATH="$NOVA_BIN:$PATH" \
                OS_NOVA_DISABLE_EVENTLET_PATCHING="$NOVA_THREADS" \
                stestr --repo-url "$repository" --test-path "$TOP/tests/$1" --top-dir "$TOP" \
                run --concurrency 2 "${@:4}"
    )
}

# Nova's own tests, with the driver in the place of nova's.
stock_tests() {
    fixture_tests stock "$@" --exclude-list "$TOP/tests/stock/exclusions.txt"
}

# Runs those that match $2, of whatever kind; there may be none of one. Uses folders that begin with $1.
matching_nova_tests() {
    local version
    for version in $(driver_releases); do
        prepare_nova "$version" && extend_nova "$1-$version" || return
        fixture_tests driver "$version" "$1-$version" "$2"
        stock_tests "$version" "$1-$version" "$2"
    done
    prepare_nova "$NOVA_VERSION" && patch_nova "$1" || return
    fixture_tests series "$NOVA_VERSION" "$1" "$2"
    nova_tests "$1" unit "$2"
    nova_tests "$1" functional "$2"
    true
}

# Runs our tests that need a nova, in its environment.
own_nova_tests() {
    PATH="$NOVA_BIN:$PATH" stestr --repo-url "$1" --test-path tests/nova --top-dir tests/nova run
}
