# Runs on a host, as root:  sh -s -- prepare USER PUBLIC_KEY EXPIRY SUDO_COMMANDS  or  sh -s -- clean USER
# or  sh -s -- maintain - "USER USER" IDLE_MINUTES yes|no
# Every step can be repeated, also after an interruption at any point.
# `set -e` ends nothing inside of a condition, an `&&` or an `||`: neither may hold more than one command
# whose failure counts.
set -eu
umask 022
action=$1 user=$2
etc=${SLUICEGATE_ETC:-/etc}

is_build_user() { case $1 in u-*[!0-9a-f]* | u-) return 1 ;; u-*) return 0 ;; *) return 1 ;; esac; }

[ "$action" = maintain ] || is_build_user "$user" || { echo "not a user of ours: $user" >&2; exit 64; }

exists() { id -u "$user" >/dev/null 2>&1; }

# Sets `home`. Never empty: what follows would change folders of the host itself.
find_home() {
    home=$(getent passwd "$user" | cut -d: -f6)
    [ -n "$home" ] || { echo "$user has no home" >&2; exit 1; }
}

prepare() {
    key=$1 expiry=$(date -d "@$2" +%Y%m%d%H%M%S) sudo=$3
    exists || useradd --create-home --home-dir "${SLUICEGATE_HOME:-/home}/$user" --shell /bin/bash "$user"
    find_home
    mkdir -p "$home/.ssh"
    # Written to a new file and moved: a login at this moment sees either the old key or the new one.
    ( umask 077; printf 'expiry-time="%s" %s\n' "$expiry" "$key" >"$home/.ssh/authorized_keys.new" )
    mv "$home/.ssh/authorized_keys.new" "$home/.ssh/authorized_keys"
    chmod 700 "$home" "$home/.ssh"
    chown -R "$user" "$home/.ssh"
    mkdir -p "$etc/security/limits.d"
    printf '%s soft nofile 65536\n%s hard nofile 1048576\n%s hard core 0\n' "$user" "$user" "$user" \
        >"$etc/security/limits.d/$user.conf"
    # A build leaves a tenth of the host to other builds and to the provisioner.
    if command -v systemctl >/dev/null 2>&1; then
        systemctl set-property --runtime "user-$(id -u "$user").slice" \
            "CPUQuota=$(($(nproc) * 90))%" MemoryMax=90% || echo "no limits on CPU and memory" >&2
    fi
    if [ -n "$sudo" ]; then
        mkdir -p "$etc/sudoers.d"
        ( umask 227; printf '%s ALL=(ALL) NOPASSWD: %s\n' "$user" "$sudo" >"$etc/sudoers.d/.$user.new" )
        mv -f "$etc/sudoers.d/.$user.new" "$etc/sudoers.d/$user"
    else
        rm -f "$etc/sudoers.d/$user"
    fi
}

clean() {
    rm -f "$etc/security/limits.d/$user.conf" "$etc/sudoers.d/$user" "$etc/sudoers.d/.$user.new"
    exists || return 0
    # No new login is possible from here on, so ending the processes is final.
    find_home
    rm -f "$home/.ssh/authorized_keys"
    if command -v loginctl >/dev/null 2>&1; then loginctl terminate-user "$user" || true; fi
    pkill -KILL -u "$user" || true
    tries=0
    until userdel --force --remove "$user" 2>/dev/null || ! exists; do
        tries=$((tries + 1))
        [ "$tries" -lt 10 ] || { echo "$user cannot be removed" >&2; exit 1; }
        sleep 0.5
    done
    rm -rf "${home:?}"
}

maintain() {
    removed=0
    for home in "${SLUICEGATE_HOME:-/home}"/u-*; do
        user=${home##*/}
        is_build_user "$user" && [ -d "$home" ] || continue
        case " $1 " in *" $user "*) continue ;; esac
        # Builds write in subfolders too, but a home that is in use also changes at its top.
        [ -n "$(find "$home" -maxdepth 0 -mmin "+$2")" ] || continue
        set +e
        ( set -e; clean )
        status=$?
        set -e
        if [ "$status" = 0 ]; then removed=$((removed + 1)); else echo "$user cannot be removed" >&2; fi
    done
    updated=no
    if [ "$3" = yes ]; then
        for tool in dnf yum zypper apt-get; do
            command -v "$tool" >/dev/null 2>&1 || continue
            case $tool in
                apt-get)
                    apt-get -qq update
                    DEBIAN_FRONTEND=noninteractive apt-get -qq -y upgrade
                    ;;
                zypper) zypper --non-interactive --quiet update ;;
                *) "$tool" -q -y update ;;
            esac >/dev/null </dev/null
            updated=yes
            break
        done
    fi
    echo "users removed: $removed, updated: $updated"
}

shift 2
case $action in
    maintain) maintain "$@" ;;
    prepare) prepare "$@" ;;
    clean) clean ;;
    *) echo "no such action: $action" >&2; exit 64 ;;
esac
