#!/usr/bin/env bash
# The test bed at a terminal: python -m lab, in its own environment; see --help.
set -eu
# shellcheck source=tools/setup.sh
source "$(dirname "$0")/setup.sh"
prepare
exec python -m lab "$@"
