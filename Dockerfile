# tributary with nats-server, for any platform of its base: npm and apt choose the binaries.
#   docker build --tag tributary .
#   docker run --volume tributary:/var/lib/tributary --publish 127.0.0.1:8080-8081:8080-8081 tributary
# Debian 12 or newer with Node.js 22 or newer and npm.
ARG BASE=docker.io/library/node:24-trixie-slim

FROM ${BASE} AS build
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
# tini reaps the children of a killed process. Debian removes older versions from its archive, so none is pinned.
# hadolint ignore=DL3008
RUN apt-get update && apt-get install --yes --no-install-recommends ca-certificates make tini && rm -rf /var/lib/apt/lists/*

WORKDIR /build
COPY package.json package-lock.json .npmrc ./
RUN npm ci --include=dev --ignore-scripts
COPY . .
ARG NATS_VERSION=2.15.1
RUN mkdir --parents /image/opt/tributary && node .build/sbom.mjs "nats-server@${NATS_VERSION}" > /image/opt/tributary/sbom.cdx.json
# The program is bundled. At run time it loads DuckDB and the database of countries.
WORKDIR /image/opt/tributary
RUN make --directory=/build dist/main.js && find /build/dist -name '*.map' -delete \
  && mkdir node_modules && mv /build/node_modules/@duckdb /build/node_modules/@ip-location-db node_modules/ \
  && mv /build/dist /build/schemas /build/pipelines /build/LICENSE /build/CHANGELOG.md . && cp /build/package.json . \
  && chmod 755 dist/main.js

# nats-server as `tributary setup` gets it. Another version in Debian's archive ends the build: pass it to accept it.
ENV TRIBUTARY_CACHE_DIR=/nats
WORKDIR /image/usr/local/bin
RUN node /image/opt/tributary/dist/main.js setup \
  && { mv "/nats/nats-server/${NATS_VERSION}/nats-server" . \
    || { echo "nats-server is not ${NATS_VERSION}: pass --build-arg NATS_VERSION=$(ls /nats/nats-server)" >&2; exit 1; }; } \
  && cp /usr/bin/tini-static tini && ln -s /opt/tributary/dist/main.js tributary \
  && install --directory --mode=700 --owner=10001 --group=10001 /image/var/lib/tributary

FROM ${BASE}
ARG VERSION=0.3.0
ARG COMMIT=
LABEL org.opencontainers.image.title="tributary" \
  org.opencontainers.image.description="Takes user and device events over HTTP, keeps them in an open Parquet lake, and hands analysts raw-data exports." \
  org.opencontainers.image.licenses="Apache-2.0" \
  org.opencontainers.image.version="${VERSION}" \
  org.opencontainers.image.revision="${COMMIT}"
COPY --from=build /image /
# The program writes below HOME and /tmp only: run it with a read-only root and a tmpfs at /tmp.
ENV HOME=/var/lib/tributary \
  NODE_ENV=production \
  TRIBUTARY_DATA_DIR=/var/lib/tributary/data \
  TRIBUTARY_HOST=0.0.0.0 \
  TRIBUTARY_DRAIN_MS=5000
VOLUME ["/var/lib/tributary"]
WORKDIR /var/lib/tributary
USER 10001:10001
EXPOSE 8080 8081
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
  CMD ["node", "-e", "fetch(`http://127.0.0.1:${process.env.TRIBUTARY_OPS_PORT || 8082}/readyz`).then(({ ok }) => process.exit(ok ? 0 : 1), () => process.exit(1))"]
ENTRYPOINT ["tini", "--", "tributary"]
CMD ["start"]
