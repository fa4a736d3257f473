#!/usr/bin/env bash
# Mutation tests of pure code; sourced by test.sh after setup.sh.
#
# Each mutant is the code with one small change, such as another operator. If the unit tests pass all the
# same, nothing tests what was changed: the mutant survives.

# A package and, after it, the unit tests that have to notice.
MUTATED=(
    "virtman/model tests/unit/virtman/model"
    "volt/placement tests/unit/volt/placement"
)

prepare_mutation() {
    local tools=("cosmic-ray>=8.4,<9" "setuptools<81")
    make_environment mutation "mutation tests" "${tools[*]}" "${tools[@]}"
    MUTATION_BIN=$ENVIRONMENT/bin
}

# Tests all mutants of package $1 by the tests in folder $2, on a copy in folder $3, where the report goes.
mutate() {
    local package=$1 tests=$2 folder=$3
    rm -rf "$folder"
    mkdir -p "$folder/tree"
    tar -c --exclude=./build --exclude=./.git --exclude=./.stestr . | tar -x -C "$folder/tree"
    cat > "$folder/config.toml" << END
[cosmic-ray]
module-path = ["$package"]
timeout = 60.0
excluded-modules = []
test-command = "python -m unittest discover -f -q -s $tests -t ."
[cosmic-ray.distributor]
name = "local"
[cosmic-ray.filters.operators-filter]
# most of these change types, which nobody runs
exclude-operators = ["core/ReplaceBinaryOperator_BitOr_.*"]
END
    (
        cd "$folder/tree" || exit
        # else a module that changes twice within a second may run as it was compiled before
        export PYTHONPATH=$PWD PYTHONDONTWRITEBYTECODE=1
        "$MUTATION_BIN/cosmic-ray" baseline ../config.toml &&
            "$MUTATION_BIN/cosmic-ray" init ../config.toml ../session.sqlite &&
            "$MUTATION_BIN/cr-filter-operators" ../session.sqlite ../config.toml &&
            "$MUTATION_BIN/cosmic-ray" exec ../config.toml ../session.sqlite &&
            "$MUTATION_BIN/cr-report" --surviving-only --show-diff ../session.sqlite > ../survivors
    ) > "$folder/log" 2>&1
}
