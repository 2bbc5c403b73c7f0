#!/bin/sh
# /usr/local/bin/tributary
set -a
. /etc/tributary.env
exec runuser -u tributary -- env HOME=/var/lib/tributary /opt/tributary/bin/tributary "$@"
