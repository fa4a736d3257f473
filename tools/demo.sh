#!/usr/bin/env bash
# Boots virtual machines on a cluster of its own, through VirtMan; see --help.
set -eu
# shellcheck source=tools/setup.sh
source "$(dirname "$0")/setup.sh"
prepare
exec python -m lab.demo "$@"
