# Runs on a host, as root:  sh -s -- prepare USER PUBLIC_KEY EXPIRY SUDO_COMMANDS  or  sh -s -- clean USER
# or  sh -s -- maintain - "USER USER" IDLE_MINUTES yes|no
# Every step can be repeated, also after an interruption at any point.
# `set -e` ends nothing inside of a condition, an `&&` or an `||`: neither may hold more than one command
# whose failure counts.
# Builds are strangers to each other and to root. Root follows no path that one of them can change.
set -eu
umask 022
action=$1 user=$2
etc=${SLUICEGATE_ETC:-/etc} homes=${SLUICEGATE_HOME:-/home}

is_build_user() { case $1 in u-*[!0-9a-f]* | u-) return 1 ;; u-*) return 0 ;; *) return 1 ;; esac; }

[ "$action" = maintain ] || is_build_user "$user" || { echo "not a user of ours: $user" >&2; exit 64; }

exists() { id -u "$user" >/dev/null 2>&1; }

# Sets `home`. Never empty: what follows would change folders of the host itself.
find_home() {
    home=$(getent passwd "$user" | cut -d: -f6)
    [ -n "$home" ] || { echo "$user has no home" >&2; exit 1; }
    [ ! -L "$home" ] || { echo "the home of $user is a link: $home" >&2; exit 1; }
}

# Other builds change the users at the same time, and these commands do not wait for each other.
patiently() {
    tries=0
    until "$@" >/dev/null 2>&1; do
        tries=$((tries + 1))
        [ "$tries" -lt 10 ] || { echo "$user cannot be changed: $1 fails" >&2; exit 1; }
        sleep 0.5
    done
}

# The build owns its home, and may change what is in it at any moment: root neither enters a folder of it nor
# opens a file of it, because each may be a link to another build's by then. The new folder is made where only
# root can change it, and takes the old one's place by renaming, which follows no link.
accept_key() {
    new=$(mktemp -d "${home%/*}/.$user.XXXXXXXX")
    mkdir -m 700 "$new/old" "$new/.ssh"
    ( umask 077; printf 'expiry-time="%s" %s\n' "$expiry" "$key" >"$new/.ssh/authorized_keys" )
    chown "$user" "$new/.ssh" "$new/.ssh/authorized_keys"
    # A renamed file keeps its label, and sshd reads only what has the label of its place.
    if command -v selinuxenabled >/dev/null 2>&1 && selinuxenabled; then
        chcon -R "$(matchpathcon -n "$home/.ssh")" "$new/.ssh"
    fi
    if [ -e "$home/.ssh" ] || [ -L "$home/.ssh" ]; then mv "$home/.ssh" "$new/old/"; fi
    mv "$new/.ssh" "$home/"
    remove_tree "$new"
}

# Removes a folder without entering a link or another file system. `find` opens each folder in its parent.
remove_tree() {
    [ -e "$1" ] || [ -L "$1" ] || return 0
    find -P "$1" -xdev -depth -delete >/dev/null 2>&1 || { echo "$1 cannot be removed" >&2; exit 1; }
}

prepare() {
    key=$1 expiry=$(date -d "@$2" +%Y%m%d%H%M%S) sudo=$3
    if exists; then
        find_home
        patiently usermod --expiredate '' "$user"
    else
        useradd --create-home --home-dir "$homes/$user" --shell /bin/bash "$user"
        find_home
    fi
    chmod 700 "$home"
    accept_key
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

# Prints those of the user, and of the users in its containers (subuid). What has ended and is not read yet is none.
processes() {
    listed=$(ps -e -o pid= -o uid= -o ruid= -o stat=) || exit 1
    printf '%s\n' "$listed" | awk -v user="$user" -v uid="$uid" -v ranges="$etc/subuid" '
        BEGIN {
            first[0] = last[0] = uid + 0
            while ((getline line <ranges) > 0)
                if (split(line, part, ":") == 3 && (part[1] == user || part[1] == uid)) {
                    first[++count] = part[2] + 0
                    last[count] = part[2] + part[3] - 1
                }
        }
        function is_ours(id, at) {
            for (at in first) if (first[at] <= id && id <= last[at]) return 1
            return 0
        }
        $4 !~ /^Z/ && (is_ours($2 + 0) || is_ours($3 + 0)) { print $1 }'
}

# Stopped first: a stopped process makes no new one while the others are ended.
end_processes() {
    tries=0
    while :; do
        found=$(processes) || exit 1
        [ -n "$found" ] || break
        tries=$((tries + 1))
        [ "$tries" -le 50 ] || { echo "processes of $user do not end" >&2; exit 1; }
        for signal in STOP KILL; do
            # shellcheck disable=SC2086 # One word for each process.
            kill -s "$signal" $found 2>/dev/null || true
        done
        sleep 0.1
    done
}

# The next user may get the same number: nothing may be left that would be its own, to read or to run.
remove_leftovers() {
    for folder in ${SLUICEGATE_SHARED:-/tmp /var/tmp /dev/shm /dev/mqueue /run/lock /var/spool /var/mail}; do
        if [ -d "$folder" ]; then
            find -P "$folder" -xdev -depth -user "$uid" -delete >/dev/null 2>&1 || true
        fi
    done
}

# Nothing may be mounted in a home that is removed: a build can mount there what FUSE offers.
unmount_all() {
    awk -v below="$(cd -P "$home" && pwd -P)/" 'index($5, below) == 1 { print $5 }' /proc/self/mountinfo |
        sort -r | while read -r point; do umount -l "$(printf '%b' "$point")" </dev/null || true; done
}

clean() {
    rm -f "$etc/security/limits.d/$user.conf" "$etc/sudoers.d/$user" "$etc/sudoers.d/.$user.new"
    home=$homes/$user
    if exists; then
        find_home
        uid=$(id -u "$user")
        [ "$uid" -gt 0 ] || { echo "$user is root" >&2; exit 1; }
        # No new login is possible from here on, whatever keys its home has, so ending the processes is final.
        patiently usermod --expiredate 1 "$user"
        if command -v loginctl >/dev/null 2>&1; then
            loginctl disable-linger "$user" >/dev/null 2>&1 || true
            loginctl terminate-user "$user" >/dev/null 2>&1 || true
        fi
        end_processes
    fi
    if [ -d "$home" ] && [ ! -L "$home" ]; then unmount_all; fi
    remove_tree "$home"
    for new in "${home%/*}/.$user".*; do remove_tree "$new"; done
    # Last: as long as the user exists, the cleaning can be repeated, and nobody else gets its number.
    if exists; then
        # Of a login that was past its check when the user was locked out.
        end_processes
        remove_leftovers
        patiently userdel --force "$user"
    fi
}

maintain() {
    removed=0
    for home in "$homes"/u-*; do
        user=${home##*/}
        is_build_user "$user" && [ -d "$home" ] && [ ! -L "$home" ] || continue
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
