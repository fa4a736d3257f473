#!/usr/bin/env bash
# Installs, configures and runs VirtMan in devstack. In local.conf:
#
#   enable_plugin virtman https://the/clone
#
# Users come to Volt with tokens of Keystone; agents and services with tokens of Volt's own, which do
# not end.

# Saving trace setting
_XTRACE_VIRTMAN=$(set +o | grep xtrace)
set +o xtrace

function _virtman_token_file {
    echo "$VIRTMAN_CONF_DIR/$1.token"
}

# Programs are where devstack's pip puts them.
function _virtman_program {
    echo "$(get_python_exec_prefix)/$1"
}

function _is_virtman_enabled {
    is_service_enabled volt || is_service_enabled virtman-agent || is_service_enabled virtman-golden
}

# Puts the settings of the file $1 into the configuration $2.
function _merge_virtman_settings {
    local file=$1 conf=$2 line group=DEFAULT
    while read -r line; do
        case $line in
            '['*']') group=${line:1:-1} ;;
            [a-z]*' = '*) iniset "$conf" "$group" "${line%% = *}" "${line#* = }" ;;
        esac
    done < "$file"
}

function install_virtman {
    if is_service_enabled virtman-agent; then
        install_package open-iscsi bcache-tools kmod
        sudo install -D -m 644 -t "$VIRTMAN_UDEV_DIR" "$VIRTMAN_DIR"/etc/udev/rules.d/*.rules
        sudo udevadm control --reload
    fi
    pip_install "$VIRTMAN_DIR[openstack]"
    if is_service_enabled nova; then
        "$VIRTMAN_DIR/nova_patches/apply" "$NOVA_DIR" ||
            die $LINENO "nova_patches do not fit $NOVA_DIR: check out $NOVA_BRANCH there"
        # Nova runs from there, and looks for drivers there.
        ln -sfn "$VIRTMAN_DIR/nova/virt/virtman" "$NOVA_DIR/nova/virt/virtman"
    fi
    if is_service_enabled horizon; then
        pip_install "$VIRTMAN_DIR/horizon_patches"
    fi
}

function _configure_volt {
    local conf=$VIRTMAN_CONF_DIR/volt.conf
    sudo install -d -o "$STACK_USER" -m 755 "$VIRTMAN_STATE_DIR"
    iniset "$conf" api bind "$SERVICE_LISTEN_ADDRESS:$VOLT_PORT"
    iniset "$conf" api auth both
    configure_keystone_authtoken_middleware "$conf" volt
    chmod 600 "$conf"
    recreate_database volt
    iniset "$conf" database connection "$(database_connection_url volt)"
    "$(_virtman_program volt-manage)" --config-file "$conf" db upgrade
    _make_virtman_token operator --role operator
    _make_virtman_token reader --role reader
}

# Gives out the token $1, as the other arguments describe it.
function _make_virtman_token {
    local file
    file=$(_virtman_token_file "$1")
    shift
    (umask 077 && "$(_virtman_program volt-manage)" \
        --config-file "$VIRTMAN_CONF_DIR/volt.conf" token create "$@" > "$file")
}

function _configure_virtman_agent {
    local conf=$VIRTMAN_CONF_DIR/virtman.conf host
    host=$(_virtman_host)
    # On a compute node of several the token comes from the machine with Volt, by hand.
    if is_service_enabled volt; then
        _make_virtman_token "$host" --role host --host "$host"
    fi
    iniset "$conf" agent host "$host"
    iniset "$conf" agent user "$STACK_USER"
    iniset "$conf" agent state_dir "$VIRTMAN_STATE_DIR/agent"
    iniset "$conf" agent socket "$VIRTMAN_RUN_DIR/agent.sock"
    iniset "$conf" volt url "$VOLT_URL"
    iniset "$conf" volt token_file "$(_virtman_token_file "$host")"
    iniset "$conf" export ip "$HOST_IP"
    iniset "$conf" export port "$VIRTMAN_EXPORT_PORT"
    iniset "$conf" peers ip "$HOST_IP"
    if [[ -n $VIRTMAN_CACHE_DEVICES ]]; then
        iniset "$conf" cache driver bcache
        iniset "$conf" cache devices "$VIRTMAN_CACHE_DEVICES"
    else
        iniset "$conf" cache driver none
    fi
}

# What nova and Volt call this machine: the names must be the same for servers to be moved.
function _virtman_host {
    local host
    host=$(iniget "$NOVA_CONF" DEFAULT host)
    host=${host:-$(hostname)}
    echo "${host,,}"
}

# The account of nova, for golden volumes and images.
function _configure_virtman_account {
    cat > "$VIRTMAN_CONF_DIR/clouds.yaml" << EOF
clouds:
  virtman:
    region_name: $REGION_NAME
    auth:
      auth_url: $KEYSTONE_SERVICE_URI
      username: nova
      password: $SERVICE_PASSWORD
      project_name: $SERVICE_PROJECT_NAME
      user_domain_name: $SERVICE_DOMAIN_NAME
      project_domain_name: $SERVICE_DOMAIN_NAME
EOF
    chmod 600 "$VIRTMAN_CONF_DIR/clouds.yaml"
}

function _configure_virtman_nova {
    local conf key
    for conf in "$NOVA_CONF" ${NOVA_CPU_CONF:+"$NOVA_CPU_CONF"}; do
        [[ -e $conf ]] || continue
        iniset "$conf" DEFAULT compute_driver virtman.LibvirtDriver
        iniset "$conf" virtman use_vmtsnapshot True
        iniset "$conf" virtman use_cachegroup "$VIRTMAN_USE_CACHEGROUP"
        iniset "$conf" virtman volume_type "$VIRTMAN_VOLUME_TYPE"
        iniset "$conf" virtman agent_socket "$VIRTMAN_RUN_DIR/agent.sock"
        # Golden volumes are nova's own.
        iniset "$conf" cinder auth_type password
        iniset "$conf" cinder auth_url "$KEYSTONE_SERVICE_URI"
        iniset "$conf" cinder username nova
        iniset "$conf" cinder password "$SERVICE_PASSWORD"
        iniset "$conf" cinder project_name "$SERVICE_PROJECT_NAME"
        for key in user_domain_name project_domain_name; do
            iniset "$conf" cinder "$key" "$SERVICE_DOMAIN_NAME"
        done
        if [[ $VIRTMAN_LARGE_REQUESTS = True ]]; then
            _merge_virtman_settings "$VIRTMAN_DIR/etc/openstack/nova-large-requests.conf" "$conf"
        fi
    done
    iniset "$NOVA_CONF" filter_scheduler weight_classes \
        nova.scheduler.weights.all_weighers,virtman.openstack.weigher.WarmWeigher
    iniset "$NOVA_CONF" virtman warm_weight_multiplier "$VIRTMAN_WARM_WEIGHT"
    iniset "$NOVA_CONF" virtman volt_url "$VOLT_URL"
    iniset "$NOVA_CONF" virtman volt_token_file "$(_virtman_token_file reader)"
}

function _configure_virtman_horizon {
    local settings=$HORIZON_DIR/openstack_dashboard/local
    cp "$VIRTMAN_DIR"/horizon_patches/virtman_dashboard/enabled/_[0-9]*.py "$settings/enabled/"
    cat > "$settings/local_settings.d/_3110_virtman.py" << EOF
VIRTMAN = {
    "endpoint": "$VOLT_URL",
    "token_file": "$(_virtman_token_file reader)",
    "volume_type": "$VIRTMAN_VOLUME_TYPE",
}
EOF
}

function configure_virtman {
    sudo install -d -o "$STACK_USER" -m 755 "$VIRTMAN_CONF_DIR"
    if is_service_enabled volt; then
        _configure_volt
    fi
    if is_service_enabled virtman-agent; then
        _configure_virtman_agent
    fi
    if is_service_enabled virtman-golden || is_service_enabled virtman-images; then
        _configure_virtman_account
    fi
    if is_service_enabled nova; then
        _configure_virtman_nova
    fi
    if is_service_enabled cinder && [[ $VIRTMAN_LARGE_REQUESTS = True ]]; then
        _merge_virtman_settings "$VIRTMAN_DIR/etc/openstack/cinder-large-requests.conf" "$CINDER_CONF"
    fi
    if is_service_enabled horizon; then
        _configure_virtman_horizon
    fi
}

function start_virtman {
    if is_service_enabled volt; then
        run_process volt "$(_virtman_program volt-api) --config-file $VIRTMAN_CONF_DIR/volt.conf"
        wait_for_service 60 "$VOLT_URL/healthz"
    fi
    if is_service_enabled virtman-agent; then
        sudo install -d -o "$STACK_USER" -m 755 "$VIRTMAN_RUN_DIR" "$VIRTMAN_STATE_DIR"
        run_process virtman-agent "$(_virtman_program virtman-agent) \
--config-file $VIRTMAN_CONF_DIR/virtman.conf" "" root
    fi
    if is_service_enabled virtman-golden; then
        run_process virtman-golden "/usr/bin/env \
OS_CLIENT_CONFIG_FILE=$VIRTMAN_CONF_DIR/clouds.yaml $(_virtman_program virtman-golden) \
--cloud virtman --volt $VOLT_URL --token-file $(_virtman_token_file operator) \
--host $(_virtman_host) --ip $HOST_IP --port $VIRTMAN_GOLDEN_PORT" "" root
    fi
    if is_service_enabled virtman-images; then
        run_process virtman-images "/usr/bin/env \
OS_CLIENT_CONFIG_FILE=$VIRTMAN_CONF_DIR/clouds.yaml $(_virtman_program virtman-images) \
--cloud virtman --volt $VOLT_URL --token-file $(_virtman_token_file operator) \
--host $(_virtman_host) --ip $HOST_IP --port $VIRTMAN_GOLDEN_PORT \
--folder $VIRTMAN_STATE_DIR/glance" "" root
    fi
}

# The type of golden volumes, which users choose too; and Volt in Keystone's catalog, with the account
# by which it asks whose token it is shown.
function create_virtman_accounts {
    if is_service_enabled c-api; then
        openstack --os-cloud devstack-admin volume type create \
            --property multiattach='<is> True' "$VIRTMAN_VOLUME_TYPE"
    fi
    if is_service_enabled volt; then
        create_service_user volt
        get_or_create_service volt virtman "VirtMan"
        get_or_create_endpoint virtman "$REGION_NAME" "$VOLT_URL"
    fi
}

function stop_virtman {
    local service
    for service in virtman-images virtman-golden virtman-agent volt; do
        stop_process "$service"
    done
}

function clean_virtman {
    if [[ -d $NOVA_DIR ]]; then
        "$VIRTMAN_DIR/nova_patches/apply" --undo "$NOVA_DIR"
        rm -f "$NOVA_DIR/nova/virt/virtman"
    fi
    rm -f "$HORIZON_DIR"/openstack_dashboard/local/enabled/_31?0_*virtman*.py \
        "$HORIZON_DIR/openstack_dashboard/local/local_settings.d/_3110_virtman.py"
    sudo rm -rf "$VIRTMAN_CONF_DIR" "$VIRTMAN_STATE_DIR" "$VIRTMAN_UDEV_DIR"/*-virtman.rules
}

if _is_virtman_enabled; then
    case $1-$2 in
        stack-install) install_virtman ;;
        stack-post-config) configure_virtman ;;
        stack-extra)
            start_virtman
            create_virtman_accounts
            ;;
    esac
fi
case $1 in
    unstack) stop_virtman ;;
    clean) clean_virtman ;;
esac

# Restore xtrace
$_XTRACE_VIRTMAN
