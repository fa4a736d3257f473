#!/usr/bin/env bash
# Horizon itself, to test horizon_patches with; sourced by test.sh.
#
# Its virtual environment is made once, and kept in the cache.

HORIZON_REQUIREMENTS=("horizon==27.0.0" "setuptools>=77" wheel)

# Sets HORIZON_BIN: programs of the virtual environment.
make_horizon_venv() {
    local key venv
    key=$(printf '%s\n' "${HORIZON_REQUIREMENTS[@]}" | sha256sum | cut -c1-16)
    venv=$VIRTMAN_CACHE/horizon-venv-$key
    if [ ! -e "$venv/complete" ]; then
        say "building the Python environment of ${HORIZON_REQUIREMENTS[0]}"
        rm -rf "$venv"
        /usr/bin/python3 -m venv "$venv" &&
            "$venv/bin/pip" install --quiet --disable-pip-version-check \
                "${HORIZON_REQUIREMENTS[@]}" &&
            touch "$venv/complete" || return
    fi
    export HORIZON_BIN=$venv/bin
}

prepare_horizon() {
    (
        flock 9
        make_horizon_venv
    ) 9> "$VIRTMAN_CACHE/horizon.lock" && make_horizon_venv
}

# Runs the plug-in's own tests, by Django's runner.
own_horizon_tests() {
    env PYTHONPATH="$TOP/horizon_patches" PYTHONDONTWRITEBYTECODE=1 \
        "$HORIZON_BIN/python" -m django test virtman_dashboard \
        --settings virtman_dashboard.tests.settings
}
