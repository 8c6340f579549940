#!/bin/sh
# Creates Temporal's two databases and brings their schema to this image's version; a current one is left as it is.
# Runs in temporalio/admin-tools, which carries the tool and the schema files.
set -eu

SQL_PASSWORD=$(cat "$POSTGRES_PASSWORD_FILE")
export SQL_PASSWORD # read by temporal-sql-tool; as an argument it would be seen in the process list

prepare() {
  database=$1
  schema=$2
  # The port is named because the tool takes MySQL's for every plugin.
  sql="temporal-sql-tool --plugin postgres12 --endpoint $POSTGRES_HOST --port 5432 --user $POSTGRES_USER --database $database"
  $sql create-database
  $sql setup-schema --version 0.0
  $sql update-schema --schema-dir "/etc/temporal/schema/postgresql/v12/$schema/versioned"
}

prepare temporal temporal
prepare temporal_visibility visibility
