#!/usr/bin/env bash
# Horizon itself, to test horizon_patches with; sourced by test.sh.
#
# Its virtual environment is made once, and kept in the cache.

HORIZON_REQUIREMENTS=("horizon==27.0.0" "setuptools>=77" wheel)

# Sets HORIZON_BIN: programs of the virtual environment.
make_horizon_venv() {
    make_environment horizon-venv "${HORIZON_REQUIREMENTS[0]}" "$(printf '%s\n' "${HORIZON_REQUIREMENTS[@]}")" \
        "${HORIZON_REQUIREMENTS[@]}" || return
    export HORIZON_BIN=$ENVIRONMENT/bin
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
