# The service alone, without a shell, for a user without rights. Its root may be read-only: only /data is written (and
# /tmp by `companion restore --verify` and `companion demo`).
#
#   docker build --tag companion .
#   docker run --read-only --tmpfs /tmp --volume companion:/data --env-file .env --stop-timeout 90 \
#     --publish 8080:8080 --publish 8081:8081 companion
#   docker run --network host companion demo        # its ports are open to this machine only
#
# Docker builds it with BuildKit; `podman build` and `buildah build` need `--format docker`, or the health check is left out, and
# full names of the images, as they search no registry. Digests are renewed as docs/operations.md, Versions, says.

FROM docker.io/library/rust:1.95-bookworm@sha256:6258907abe69656e41cd992e0b705cdcfabcbbe3db374f92ed2d47121282d4a1 AS build
# `postgres-tls,openssl-sys/vendored` for a PostgreSQL on another machine.
ARG FEATURES=""
# The history is not in here; without it `companion --version` says `unknown`.
ARG COMMIT=""
WORKDIR /src
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    COMPANION_COMMIT="$COMMIT" cargo build --release --locked --features "$FEATURES" \
    && install -D target/release/companion /image/usr/local/bin/companion \
    && install -d -m 700 /image/own/data

# Takes backups (deploy/backup.sh): with a shell and the tools of PostgreSQL. `docker build --target backup`
FROM docker.io/library/postgres:17-bookworm@sha256:639ab7ceb90e13123085b741fb31ef493fba25463002f6da665352e7b534b652 AS backup
COPY --from=build /image/usr/local/bin/companion /usr/local/bin/companion
COPY deploy/backup.sh /usr/local/bin/companion-backup
RUN install -d -m 700 -o 65532 -g 65532 /backups
ENV APP_ENV=production \
    DATA_DIR=/data \
    BACKUP_DIR=/backups
USER 65532:65532
VOLUME ["/backups"]
ENTRYPOINT ["/usr/local/bin/companion-backup"]

# The C library, certificates and nothing else; its user is 65532.
FROM gcr.io/distroless/cc-debian12:nonroot@sha256:9dac0a79194e45a7da0158a9c6da57b217585af0786db3845d1f0ec1a0dd182f
# A directory that is copied itself becomes 755; what is within it keeps its mode, which a new volume takes over.
COPY --from=build --chown=65532:65532 /image/own/ /
COPY --from=build /image/usr/local/bin/companion /usr/local/bin/companion
ENV APP_ENV=production \
    DATA_DIR=/data \
    API_LISTEN=0.0.0.0:8080 \
    RELAY_LISTEN=0.0.0.0:8081
WORKDIR /data
USER 65532:65532
VOLUME ["/data"]
EXPOSE 8080 8081
# SIGTERM lets what is under way end: give it longer than that (`--stop-timeout`, `stop_grace_period`).
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=15s --timeout=10s --start-period=60s --retries=3 CMD ["/usr/local/bin/companion", "health"]
ENTRYPOINT ["/usr/local/bin/companion"]
CMD ["serve"]
