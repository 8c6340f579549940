#!/bin/sh
# Starts PostgreSQL as the official image does, as far as compose.yaml relies on it: an empty volume becomes a database
# cluster with the user POSTGRES_USER, its password from a file, and a database of the user's name.
set -eu

if [ ! -s "$PGDATA/PG_VERSION" ]; then
  chmod 700 "$PGDATA"
  initdb --username="$POSTGRES_USER" --pwfile="$POSTGRES_PASSWORD_FILE" --auth-local=trust --auth-host=scram-sha-256
  echo "host all all all scram-sha-256" >>"$PGDATA/pg_hba.conf"
  echo "listen_addresses = '*'" >>"$PGDATA/postgresql.conf"
  pg_ctl --wait --options="-c listen_addresses=''" start
  createdb --username="$POSTGRES_USER" --maintenance-db=postgres "${POSTGRES_DB:-$POSTGRES_USER}"
  pg_ctl --wait --mode=fast stop
fi
exec "$@"
