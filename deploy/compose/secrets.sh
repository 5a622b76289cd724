#!/bin/sh
# Makes the secrets that compose.yaml mounts and that are not there yet. The folder is its owner's alone; the files in it can be
# read by every user of a container, since each of those runs as another one.
set -eu
cd "$(dirname "$0")"
umask 077
mkdir -p secrets
for name in database_password grafana_password sentinel_token; do
    [ -e "secrets/$name" ] || od -An -N24 -tx1 /dev/urandom | tr -d ' \n' > "secrets/$name"
done
[ -e secrets/slack_url ] || echo https://hooks.slack.example/replace-me > secrets/slack_url
[ -e secrets/pagerduty_key ] || echo replace-me > secrets/pagerduty_key
chmod 444 secrets/*
