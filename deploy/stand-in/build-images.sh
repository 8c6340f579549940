#!/bin/sh
# Builds STAND-INS for the official images that compose.yaml names, for machines that cannot pull images.
#
#   deploy/stand-in/build-images.sh [NAME...]     (root, debootstrap, docker, Go, and `make setup`; names are below)
#
# Temporal's server, its schema tool and its Web UI are built from their releases' sources by Go, PostgreSQL and
# Prometheus are Debian's. Every tag ends with `-stand-in` (versions.env): they are for tests. Grafana has none.
set -eu
cd "$(dirname "$0")/../.."

here=deploy/stand-in
base=holdfast-stand-in/python:3.13-slim-trixie
. "$here/versions.env"
server=${TEMPORAL_VERSION%-stand-in}
ui=${TEMPORAL_UI_VERSION%-stand-in}

contexts=$(mktemp -d)
trap 'rm -rf "$contexts"' EXIT INT TERM

# module PATH VERSION: where Go keeps the sources of a module, which it downloads where it has not yet.
module() {
  go mod download -json "$1@v$2" | sed -n 's/^[[:space:]]*"Dir": "\(.*\)",$/\1/p'
}

# programs: where the tests' cluster keeps the server's programs, which it builds where it has not yet.
programs() {
  .venv/bin/python -c "from tests.cluster.binaries import built; print(built('$server').server.parent)" | tail -n 1
}

# image NAME TAG: built by images/NAME.Dockerfile, of what was laid in its context.
image() {
  mkdir -p "$contexts/$1"
  docker build --quiet --file "$here/images/$1.Dockerfile" --build-arg "BASE=$base" --tag "$2" \
    --label holdfast.stand-in="built from sources and Debian packages" "$contexts/$1" >/dev/null
  echo "built $2"
}

build() {
  context=$contexts/$1
  mkdir -p "$context"
  case $1 in
    postgres)
      install -m 755 "$here/images/postgres-entrypoint.sh" "$context"
      image postgres "postgres:$POSTGRES_VERSION"
      ;;
    prometheus)
      image prometheus "prom/prometheus:$PROMETHEUS_VERSION"
      ;;
    server)
      install -m 755 "$(programs)/server" "$context/temporal-server"
      install -m 755 "$(module go.temporal.io/server "$server")/docker/scripts/sh/entrypoint.sh" "$context"
      image server "temporalio/server:$TEMPORAL_VERSION"
      ;;
    admin-tools)
      install -m 755 "$(programs)/sql" "$context/temporal-sql-tool"
      install -m 755 .venv/bin/temporal "$context"
      cp -r --no-preserve=mode "$(module go.temporal.io/server "$server")/schema" "$context"
      image admin-tools "temporalio/admin-tools:$TEMPORAL_VERSION"
      ;;
    ui)
      GOBIN=$context CGO_ENABLED=0 go install "github.com/temporalio/ui-server/v2/cmd/server@v$ui"
      mv "$context/server" "$context/ui-server"
      sources=$(module github.com/temporalio/ui-server/v2 "$ui")
      install -m 755 "$sources/docker/start-ui-server.sh" "$context"
      install -m 644 "$sources/config/docker.yaml" "$context"
      image ui "temporalio/ui:$TEMPORAL_UI_VERSION"
      ;;
    *)
      echo "there is no stand-in for '$1'; choose postgres, prometheus, server, admin-tools or ui" >&2
      exit 2
      ;;
  esac
}

docker image inspect "$base" >/dev/null 2>&1 || "$here/build-base.sh" "$base"
image alpine holdfast-stand-in/alpine
for name in ${*:-postgres prometheus server admin-tools ui}; do
  build "$name"
done
