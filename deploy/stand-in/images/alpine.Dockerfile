# A STAND-IN for Alpine, on which Temporal's official images are built: their start script and compose.yaml's health
# checks go by BusyBox's sh and wget. Its nc has -z there and lacks it in Debian, so that one is OpenBSD's.
ARG BASE=holdfast-stand-in/python:3.13-slim-trixie
FROM ${BASE}
RUN apt-get update \
 && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends busybox netcat-openbsd \
 && rm -rf /var/lib/apt/lists/* \
 && ln -s /usr/bin/busybox /usr/local/bin/wget \
 && ln -sf busybox /usr/bin/sh \
 && groupadd --gid 1000 temporal \
 && useradd --uid 1000 --gid 1000 --no-create-home temporal
