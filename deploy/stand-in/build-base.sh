#!/bin/sh
# Builds a STAND-IN for the official Python image out of Debian packages, for machines that cannot pull images.
#
#   deploy/stand-in/build-base.sh [TAG]        (root, debootstrap and docker; the default tag is below)
#   docker build -f deploy/Dockerfile --build-arg PYTHON_IMAGE=TAG .
#
# It is not the official image: the interpreter is Debian's own build. It says so in its name, in a label that every
# image built on it inherits, and in /STAND-IN. It is for tests; ship images built on the official one.
#
# DEBIAN_MIRROR names another mirror than debootstrap's default. A certificate authority that this machine trusts on
# its own account (a proxy's) is copied in, or nothing inside the image could be downloaded.
set -eu

tag=${1:-holdfast-stand-in/python:3.13-slim-trixie}
suite=trixie # carries the Python that deploy/Dockerfile names
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT INT TERM

debootstrap --variant=minbase --include=ca-certificates,python3,python3-pip,python3-venv,tzdata \
  "$suite" "$root" ${DEBIAN_MIRROR:+"$DEBIAN_MIRROR"}

# What the official image has under /usr/local: `python` beside `python3`, and a pip that nobody forbids to install.
ln -s /usr/bin/python3 "$root/usr/local/bin/python"
ln -s /usr/bin/python3 "$root/usr/local/bin/python3"
ln -s /usr/bin/pip3 "$root/usr/local/bin/pip"
rm -f "$root"/usr/lib/python3*/EXTERNALLY-MANAGED

if ls /usr/local/share/ca-certificates/*.crt >/dev/null 2>&1; then
  cp /usr/local/share/ca-certificates/*.crt "$root/usr/local/share/ca-certificates/"
  chroot "$root" update-ca-certificates >/dev/null
fi

# What the slim image leaves out.
rm -rf "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/* "$root"/var/log/* \
  "$root"/usr/share/doc/* "$root"/usr/share/man/* "$root"/usr/share/locale/*
find "$root/usr" -name __pycache__ -type d -prune -exec rm -rf {} +

echo "A stand-in for the official Python image, built from Debian $suite packages. Not for production." >"$root/STAND-IN"
tar --create --numeric-owner --directory "$root" . | docker import \
  --change 'ENV PATH=/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin' \
  --change 'CMD ["python3"]' \
  --change 'LABEL holdfast.stand-in="the Python base is built from Debian packages"' \
  - "$tag" >/dev/null
echo "built $tag"
