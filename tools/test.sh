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
  patches     the driver of nova, and the patch of nova_patches with it, in nova's own fixtures
  chaos       tests of a Volt that is killed again and again, a minute a database
  system      tests on the test bed: real kernels, as root

Parts that run only when they are named:

  horizon     horizon_patches, in a browser before a real Horizon; takes five minutes
  nova        the same, and all of nova's own tests of what the patch touches; takes half an hour
  faults      the table of faults, and checks by other tools, on the test bed; many hours,
              or about two with VIRTMAN_FAULTS_STRIDE=4
  openstack   servers in a real OpenStack on the test bed; 5 GB of memory, about three hours
  simulation  the simulator at full size, beside what is known otherwise; two minutes
  mutation    small changes of pure code, each of which a unit test should notice; an hour

REGEX chooses among the tests of a part. All parts run, whatever becomes of one.
The exit status is 0 if nothing failed.
EOF
}

# shellcheck source=tools/setup.sh
. "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
# shellcheck source=tools/nova.sh
. "$(dirname "${BASH_SOURCE[0]}")/nova.sh"
# shellcheck source=tools/horizon.sh
. "$(dirname "${BASH_SOURCE[0]}")/horizon.sh"
# shellcheck source=tools/mutation.sh
. "$(dirname "${BASH_SOURCE[0]}")/mutation.sh"

PARTS=(lint docs unit functional patches chaos system)
NAMED=(faults horizon nova openstack simulation mutation)
passed=0 failed=0 skipped=0 faults=() broken=() reasons=''

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
    [ -e .git ] || say "release notes left out: reno needs a git clone"
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
        failed=$((failed + 1)) broken+=("$1")
    fi
}

# Prints each failed test of a report of stestr's with its tracebacks, and what hung in kernels then;
# without what was logged.
tracebacks() {
    awk '
        /^\{[0-9]+\} |^=+$/ { failed = / \.\.\. FAILED$/; inside = 0; name = $2 }
        /^ *Captured / { inside = 0 }
        failed && /^ *Captured (traceback(-[0-9]+)?|what waits in .*):$/ {
            inside = 1
            print "\n" name
            sub(/^ *Captured /, "")
        }
        inside && NF && !/^ *~+$/
    '
}

# Adds up the totals of stestr's report $1, and notes what failed; fails if no test was executed.
count() {
    local word number executed=0 names
    mapfile -t names < <(sed -nE 's/^\{[0-9]+\} (.*) \[[0-9.]+s\] \.\.\. FAILED$/\1/p' "$1")
    broken+=("${names[@]}")
    reasons+=$(tracebacks < "$1")
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

# Passes on what stestr prints; says each half minute how many of $1 tests are done, and about how
# long the rest takes.
progress() {
    local total=$1 executed=0 began=$SECONDS told=$SECONDS line rest=''
    while IFS= read -r line || [ -n "$line" ]; do
        printf '%s\n' "$line"
        [[ $line =~ \.\.\.\ (ok|FAILED|SKIPPED) ]] && executed=$((executed + 1))
        if [ $((SECONDS - told)) -ge 30 ] && [ "$executed" -gt 0 ]; then
            told=$SECONDS
            [ "$total" -eq 0 ] || rest=", about $(((told - began) * (total - executed) / executed)) s to go"
            say "$executed tests${rest:+ of $total} after $((told - began)) s$rest"
        fi
    done
}

# Runs a command that reports as stestr does on $2 tests (0 if nobody knows how many), and counts the
# tests in its report, file $1.
report() {
    local file=$1 total=$2 before=$failed status
    shift 2
    "$@" 2>&1 | tee "$file" | progress "$total"
    status=${PIPESTATUS[0]}
    echo # stestr may leave its last line open
    if ! count "$file"; then
        say "$file: no test was executed"
    elif [ "$status" -eq 0 ] || [ "$failed" -gt "$before" ]; then
        return
    fi
    failed=$((failed + 1))
}

run_tests() {
    local part=$1 repository=.stestr/$1 options=()
    shift
    local tests=(stestr --repo-url "$repository" --test-path "tests/$part")
    case $part in
        # these wait more than they compute
        functional | chaos) options=(--concurrency $((2 * $(nproc)))) ;;
        # a class has a bed, and waits until there is room for its nodes
        system) tests+=(--group_regex '([^.]+\.)+') options=(--concurrency 3) ;;
        horizon | faults | openstack) options=(--serial) ;;
    esac
    mkdir -p "$repository"
    export VIRTMAN_FIGURES=$PWD/$repository/figures
    : > "$VIRTMAN_FIGURES"
    [ -e "$repository/.stestr/format" ] || "${tests[@]}" init
    [ ! -e "tests/$part/durations" ] || python tools/durations.py load "$repository" "tests/$part/durations"
    report "$repository/report" "$("${tests[@]}" list "$@" | wc -l)" \
        "${tests[@]}" run "${options[@]}" "$@"
    cat "$VIRTMAN_FIGURES"
}

# Runs the tests of the driver with release $2 in the folder $3: of part nova all, of part patches those
# that are not long, fewer with an older release, and nova's own with the newest release only.
run_driver() {
    local part=$1 version=$2 folder=$3 newest driver=() stock=()
    newest=$(driver_releases | tail -n 1)
    if [ "$part" = patches ]; then
        stock=("$STOCK_TESTS")
        driver=("^(?!.*($LONG_DRIVER_TESTS))")
        [ "$version" = "$newest" ] || driver=("$DRIVER_TESTS")
    fi
    if ! { prepare_nova "$version" && extend_nova "$folder"; }; then
        failed=$((failed + 1))
        return
    fi
    report ".stestr/$part/driver-$version" 0 fixture_tests driver "$version" "$folder" "${driver[@]}"
    [ "$part" = patches ] && [ "$version" != "$newest" ] ||
        report ".stestr/$part/stock-$version" 0 stock_tests "$version" "$folder" "${stock[@]}"
}

# Runs tests of the part $1: of the driver, and of nova in one that is patched. With REGEX those that
# match it, with the options off; else the tests of the part, of part nova with the options on as well.
run_nova() {
    local part=$1 folder=$TOP/build/nova repository=.stestr/$1 kind version
    local -n tests=${part^^}_TESTS
    mkdir -p "$repository"
    if [ $# -gt 1 ]; then
        report "$repository/report" 0 matching_nova_tests "$folder" "$2"
        return
    fi
    for version in $(driver_releases); do
        run_driver "$part" "$version" "$folder-$version"
    done
    if ! { prepare_nova "$NOVA_VERSION" && patch_nova "$folder"; }; then
        failed=$((failed + 1))
        return
    fi
    report "$repository/series" 0 fixture_tests series "$NOVA_VERSION" "$folder"
    report "$repository/own" 0 own_nova_tests "$repository"
    for kind in "${!tests[@]}"; do
        report "$repository/$kind-off" 0 nova_tests "$folder" "$kind" "${tests[$kind]}"
        [ "$part" = nova ] || continue
        report "$repository/$kind-on" 0 nova_tests "$folder" "$kind" "${tests[$kind]}" \
            OS_VIRTMAN__USE_VMTSNAPSHOT=true
    done
}

# With REGEX only those of the tests in a browser that match it.
run_horizon() {
    mkdir -p .stestr/horizon
    if ! prepare_horizon; then
        failed=$((failed + 1))
        return
    fi
    [ $# -gt 0 ] || report .stestr/horizon/own 0 own_horizon_tests
    run_tests horizon "$@"
}

# Mutants that survive are no failures: they tell where a test is missing, or change nothing.
run_mutation() {
    local words package jobs=() folder=$TOP/build/mutation
    if ! prepare_mutation; then
        failed=$((failed + 1))
        return
    fi
    for words in "${MUTATED[@]}"; do
        package=${words%% *}
        mutate "$package" "${words#* }" "$folder/${package//\//-}" &
        jobs+=("$! $folder/${package//\//-}")
    done
    for words in "${jobs[@]}"; do
        if wait "${words%% *}"; then
            passed=$((passed + 1))
            printf '%s: ' "${words#* }/survivors"
            tail -n 1 "${words#* }/survivors"
        else
            say "see ${words#* }/log"
            failed=$((failed + 1))
        fi
    done
}

run_part() {
    local part=$1 began=$SECONDS before=$failed result=passed
    say "$part"
    case $part in
        lint | docs) check "$part" ;;
        nova | patches) run_nova "$@" ;;
        horizon) run_horizon "${@:2}" ;;
        mutation) run_mutation ;;
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
[ -z "$reasons" ] || printf '%s\n' "$reasons"
[ ${#broken[@]} -eq 0 ] || printf 'failed: %s\n' "${broken[@]}"
printf '%s passed, %s failed, %s skipped\n' "$passed" "$failed" "$skipped"
[ "$failed" -eq 0 ]
