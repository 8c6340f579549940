# A STAND-IN for postgres: Debian's package, with the official image's user, places and signal.
ARG BASE=holdfast-stand-in/python:3.13-slim-trixie
FROM ${BASE}
# The user before the package makes one of its own; and no database of the package's.
RUN groupadd --gid 999 postgres \
 && useradd --uid 999 --gid 999 --no-create-home --home-dir /var/lib/postgresql --shell /bin/sh postgres \
 && mkdir /etc/postgresql-common \
 && echo "create_main_cluster = false" > /etc/postgresql-common/createcluster.conf \
 && apt-get update \
 && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends postgresql-17 \
 && rm -rf /var/lib/apt/lists/* \
 && install -d -m 1777 -o postgres -g postgres /var/lib/postgresql/data
COPY postgres-entrypoint.sh /usr/local/bin/
ENV PATH=/usr/lib/postgresql/17/bin:$PATH LANG=C.UTF-8 PGDATA=/var/lib/postgresql/data
VOLUME /var/lib/postgresql/data
STOPSIGNAL SIGINT
ENTRYPOINT ["postgres-entrypoint.sh"]
CMD ["postgres"]
