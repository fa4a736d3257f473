#!/usr/bin/env bash
# Boots virtual machines on a cluster of its own, through VirtMan; see --help.
# With --openstack, which comes first, as servers of a real OpenStack.
set -eu
# shellcheck source=tools/setup.sh
source "$(dirname "$0")/setup.sh"
prepare
if [ "${1:-}" = --openstack ]; then
    shift
    exec python -m lab.openstack.demo "$@"
fi
exec python -m lab.demo "$@"
