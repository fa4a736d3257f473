#!/usr/bin/env bash
# The functions of devstack that the plug-in calls, for a root of their own in $ROOT. What they would
# do to the machine is written to $ROOT/calls; configuration files are real.

function _call {
    (IFS='|' && echo "$*" >> "$ROOT/calls")
}
for name in define_plugin install_package pip_install recreate_database run_process stop_process \
    wait_for_service create_service_user get_or_create_service get_or_create_endpoint openstack \
    udevadm; do
    eval "function $name { _call $name \"\$@\"; }"
done

# ONLY: what local.conf does not disable of the plug-in's own.
function enable_service {
    ENABLED_SERVICES+=" ${ONLY:-$*}"
}
function is_service_enabled {
    [[ " $ENABLED_SERVICES " = *" $1 "* ]]
}
function trueorfalse {
    [[ ${!2:-$1} = [Tt]rue ]] && echo True || echo False
}
function get_python_exec_prefix {
    echo "$PROGRAMS"
}
function database_connection_url {
    echo "sqlite:///$ROOT/$1.sqlite"
}
function sudo {
    "$@"
}
function die {
    echo "$2" >&2
    exit 1
}
function iniset {
    echo -e "[$2]\n$3 = $4" >> "$1"
}
function configure_keystone_authtoken_middleware {
    local option
    for option in auth_type=password interface=public auth_url="$KEYSTONE_SERVICE_URI" username="$2" \
        password="$SERVICE_PASSWORD" user_domain_name="$SERVICE_DOMAIN_NAME" \
        project_name="$SERVICE_PROJECT_NAME" project_domain_name="$SERVICE_DOMAIN_NAME" \
        cafile= memcached_servers=localhost:11211; do
        iniset "$1" "${3:-keystone_authtoken}" "${option%%=*}" "${option#*=}"
    done
}
function iniget {
    sed -n "s/^$3 = //p" "$1" 2> /dev/null
}

DEST=$ROOT/dest DATA_DIR=$ROOT/data STACK_USER=$(id -un)
VIRTMAN_CONF_DIR=$ROOT/etc/virtman VIRTMAN_RUN_DIR=$ROOT/run VIRTMAN_UDEV_DIR=$ROOT/etc/udev
NOVA_DIR=$DEST/nova NOVA_CONF=$ROOT/etc/nova.conf NOVA_CPU_CONF=$ROOT/etc/nova-cpu.conf
HORIZON_DIR=$DEST/horizon CINDER_CONF=$ROOT/etc/cinder.conf
SERVICE_HOST=192.0.2.1 HOST_IP=192.0.2.1 SERVICE_LISTEN_ADDRESS=0.0.0.0 REGION_NAME=RegionOne
KEYSTONE_SERVICE_URI=${KEYSTONE:-http://192.0.2.1/identity} SERVICE_PASSWORD=password-in-the-clear
SERVICE_PROJECT_NAME=service SERVICE_DOMAIN_NAME=Default
