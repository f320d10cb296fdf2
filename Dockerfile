# The image of server and controller. Build it from a checkout after "npm ci" on Linux: "docker build ." or, without Docker, scripts/image.sh.
# Packages and Node 26 come from node_modules, so the image holds exactly what the lock file says and what the tests ran on.
ARG BASE=debian:bookworm-slim

FROM ${BASE} AS base
RUN set -eu; \
    for package in ca-certificates libatomic1 libstdc++6; do \
      dpkg-query -W -f '${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed || missing="${missing:-} $package"; \
    done; \
    if [ -n "${missing:-}" ]; then \
      apt-get update -qq; \
      DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing; \
      rm -rf /var/lib/apt/lists/*; \
    fi; \
    echo 'keyturn:x:65532:65532:keyturn:/nonexistent:/usr/sbin/nologin' >>/etc/passwd; \
    echo 'keyturn:x:65532:' >>/etc/group

FROM base AS packages
COPY . /build
RUN set -eu; \
    mkdir -p /app/scripts; \
    cd /build; \
    node_modules/node/bin/node scripts/image-modules.ts /app/node_modules; \
    cp -R src package.json /app/; \
    [ ! -f LICENSE ] || cp LICENSE /app/; \
    find /app/src -name '*.test.ts' -delete; \
    cp scripts/link-bin.sh /app/scripts/; \
    sh /app/scripts/link-bin.sh; \
    rm -r /app/scripts; \
    chmod -R go-w,a+rX /app

FROM base
ARG BASE
ARG VERSION=unknown
ARG REVISION=unknown
ARG CREATED=1970-01-01T00:00:00Z
LABEL org.opencontainers.image.title="keyturn" \
      org.opencontainers.image.description="Keeps directory passwords turning: LDAP login, an LDAP secrets engine, and the Kubernetes operator that drives them" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.base.name="${BASE}"
COPY --from=packages /build/node_modules/node/bin/node /usr/local/bin/node
COPY --from=packages /app /opt/keyturn
# Where volumes are mounted; without one, the data lives and dies with the container.
RUN ln -s /opt/keyturn/node_modules/.bin/keyturn /usr/local/bin/keyturn \
    && mkdir -p /var/lib/keyturn /run/keyturn \
    && chown 65532:65532 /var/lib/keyturn /run/keyturn \
    && chmod 0700 /var/lib/keyturn /run/keyturn
ENV NODE_ENV=production
# A number, so that Kubernetes can see that it is not root.
USER 65532:65532
WORKDIR /var/lib/keyturn
EXPOSE 8200
ENTRYPOINT ["/usr/local/bin/keyturn"]
CMD ["help"]
