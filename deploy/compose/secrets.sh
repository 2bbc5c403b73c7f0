#!/bin/sh
# Creates secrets/ for cluster.yaml, with random passwords. It keeps a folder that exists.
set -eu
cd "$(dirname "$0")"
[ ! -e secrets ] || exit 0
random() { od -An -N24 -tx1 /dev/urandom | tr -d ' \n'; }
service=$(random) system=$(random) routes=$(random) key=$(random) secret=$(random)
mkdir -m 700 secrets.new
cd secrets.new
servers=nats-1,nats-2,nats-3
echo "nats://service:$service@$servers" >nats-url
echo "nats://system:$system@$servers" >nats-system-url
printf '[default]\naws_access_key_id = %s\naws_secret_access_key = %s\n' "$key" "$secret" >aws-credentials
printf 'ROOT_ACCESS_KEY=%s\nROOT_SECRET_KEY=%s\n' "$key" "$secret" >s3.env
cat >nats.conf <<END
server_name: \$SERVER_NAME
listen: 0.0.0.0:4222
max_payload: 2MB
jetstream { store_dir: /var/lib/tributary/nats, max_file_store: 20GB, sync_interval: always }
cluster {
  name: tributary
  listen: 0.0.0.0:6222
  authorization { user: route, password: "$routes" }
  routes: [nats://route:$routes@nats-1:6222, nats://route:$routes@nats-2:6222, nats://route:$routes@nats-3:6222]
}
accounts {
  SYS { users: [{ user: system, password: "$system" }] }
  APP { jetstream: enabled, users: [{ user: service, password: "$service" }] }
}
system_account: SYS
END
# The containers read them as user 10001. The folder keeps other users out.
chmod 644 ./*
cd ..
mv secrets.new secrets
