#!/bin/sh
# Has nats-server read its files again when one of them has changed: users, certificates. Connections whose user
# or key is still there go on. A configuration that cannot be used changes nothing: the server's log says why.
# usage: reload.sh SECONDS FOLDER...    PID: of the server; without, the process of that name in this pod.
seconds=$1
shift
state() { find -L "$@" -type f ! -path '*/..*' 2>/dev/null | sort | xargs cat 2>/dev/null | sha256sum; }
tell() { kill -HUP "${PID:-$(pidof nats-server)}"; }
# The server may have read its files before they changed and this began: it is told once at the start.
was=
again=
last=$(state "$@")
while sleep "$seconds"; do
  now=$(state "$@")
  before=$last
  last=$now
  # Twice the same: a file that is half written must not be read. Without its users the server drops everybody.
  [ "$now" = "$before" ] || continue
  if [ "$now" != "$was" ]; then
    tell || continue
    was=$now
    again=yes
    echo "files have changed: told nats-server to read them again"
  elif [ "$again" ]; then
    # An account that is new has what it imports only after the second time: a spoke, or a new key of one.
    tell && again=
  fi
done
