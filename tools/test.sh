#!/usr/bin/env bash
# Runs the gates and the tests; the last line counts them.

usage() {
    cat << 'EOF'
tools/test.sh [PART [REGEX...]]

Parts, in the order in which they run when none is named:

  lint        style, imports, types, shell scripts, release notes, sample files
  docs        the documentation builds without a warning
  unit        tests of pure code
  functional  tests of whole programs on this machine
  chaos       tests of a Volt that is killed again and again, a minute a database
  system      tests on the test bed: real kernels, as root

Parts that run only when they are named:

  nova        nova_patches, by nova's own tests of what they touch; takes half an hour

REGEX chooses among the tests of a part. All parts run, whatever becomes of one.
The exit status is 0 if nothing failed.
EOF
}

# shellcheck source=tools/setup.sh
. "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
# shellcheck source=tools/nova.sh
. "$(dirname "${BASH_SOURCE[0]}")/nova.sh"

PARTS=(lint docs unit functional chaos system)
NAMED=(nova)
passed=0 failed=0 skipped=0 faults=()

# Scripts are known by their first line, as some have no suffix.
shell_files() {
    find . -type d \( -name .git -o -name .tox -o -name build -o -name __pycache__ \) -prune -o \
        -type f -exec awk 'FNR == 1 && /^#!.*[\/ ](ba)?sh$/ {print FILENAME} {nextfile}' {} +
}

# Runs one gate of a part; the part goes on with the next one.
gate() {
    "$@" && return
    faults+=("$1")
}

lint() {
    local scripts
    mapfile -t scripts < <(shell_files)
    gate ruff check
    gate ruff format --check
    gate lint-imports --no-logo
    gate mypy
    gate bashate -i E006 "${scripts[@]}"
    if [ -e .git ]; then
        gate reno -q lint
    else
        say "release notes not checked: reno needs a git clone"
    fi
    gate tools/sample_config.py --check
}

docs() {
    gate sphinx-build -q -E -W --keep-going -b html doc/source doc/build/html
}

# A part of gates counts as one test.
check() {
    faults=()
    "$1"
    if [ ${#faults[@]} -eq 0 ]; then
        passed=$((passed + 1))
    else
        say "$1: ${faults[*]} found something"
        failed=$((failed + 1))
    fi
}

# Adds up the totals of stestr's report $1; fails if no test was executed.
count() {
    local word number executed=0
    while read -r word number; do
        case $word in
            Passed | Expected) passed=$((passed + number)) ;;
            Failed | Unexpected) failed=$((failed + number)) ;;
            Skipped) skipped=$((skipped + number)); continue ;;
        esac
        executed=$((executed + number))
    done < <(sed -nE 's/^ - ([A-Z][a-z]+)[A-Za-z ]*: ([0-9]+)$/\1 \2/p' "$1")
    [ "$executed" -gt 0 ]
}

run_tests() {
    local part=$1 repository=.stestr/$1 before=$failed options=() status
    shift
    case $part in chaos | system) options=(--serial) ;; esac
    mkdir -p "$repository"
    export VIRTMAN_FIGURES=$PWD/$repository/figures
    : > "$VIRTMAN_FIGURES"
    stestr --repo-url "$repository" --test-path "tests/$part" run "${options[@]}" "$@" 2>&1 |
        tee "$repository/report"
    status=${PIPESTATUS[0]}
    echo # stestr may leave its last line open
    cat "$VIRTMAN_FIGURES"
    if ! count "$repository/report"; then
        say "$part: no test was executed"
    elif [ "$status" -eq 0 ] || [ "$failed" -gt "$before" ]; then
        return
    fi
    failed=$((failed + 1))
}

# Runs a command that reports as stestr does, under the name $1, and counts its tests.
count_tests() {
    local name=$1 before=$failed status
    shift
    mkdir -p .stestr/nova
    "$@" > ".stestr/nova/$name" 2>&1
    status=$?
    if count ".stestr/nova/$name" && { [ "$status" -eq 0 ] || [ "$failed" -gt "$before" ]; }; then
        [ "$failed" -eq "$before" ] || cat ".stestr/nova/$name"
    else
        cat ".stestr/nova/$name"
        failed=$((failed + 1))
    fi
    say "nova: $name: $(grep -c ' \.\.\. ok$\|^ - Passed: ' ".stestr/nova/$name" || true)"
}

# Our own tests, in nova's environment.
own_nova_tests() {
    PATH="$NOVA_BIN:$PATH" stestr --repo-url .stestr/own --test-path tests/nova --top-dir tests/nova run
}

# With REGEX only nova's tests that match it run, with the option off.
run_nova() {
    local folder=$TOP/build/nova on=OS_VIRTMAN__USE_VMTSNAPSHOT=true
    if ! { prepare_nova && patch_nova "$folder"; }; then
        failed=$((failed + 1))
        return
    fi
    if [ $# -gt 0 ]; then
        count_tests unit nova_tests "$folder" unit "$1"
        count_tests functional nova_tests "$folder" functional "$1"
        return
    fi
    count_tests own own_nova_tests
    count_tests unit-off nova_tests "$folder" unit "$NOVA_UNIT"
    count_tests unit-on nova_tests "$folder" unit "$NOVA_UNIT" "$on"
    count_tests functional-off nova_tests "$folder" functional "$NOVA_FUNCTIONAL"
    count_tests functional-on nova_tests "$folder" functional "$NOVA_FUNCTIONAL" "$on"
}

run_part() {
    local part=$1 began=$SECONDS before=$failed result=passed
    say "$part"
    case $part in
        lint | docs) check "$part" ;;
        nova) run_nova "${@:2}" ;;
        *) run_tests "$@" ;;
    esac
    [ "$failed" -eq "$before" ] || result=FAILED
    say "$part $result after $((SECONDS - began)) s"
}

case " ${PARTS[*]} ${NAMED[*]} " in
    *" ${1:-lint} "*) ;;
    *)
        usage
        [[ $1 = -h || $1 = --help ]] || exit 2
        exit
        ;;
esac

prepare || exit
if [ $# -gt 0 ]; then
    run_part "$@"
else
    for part in "${PARTS[@]}"; do
        run_part "$part"
    done
fi
printf '%s passed, %s failed, %s skipped\n' "$passed" "$failed" "$skipped"
[ "$failed" -eq 0 ]
