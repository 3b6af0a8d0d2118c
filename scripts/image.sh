#!/bin/sh
# Builds the image of deploy/Containerfile from dist/ (`make static`), pulling nothing, and serves a tiny model from it: with no network of
# its own, nothing that it can write but /state, and no right to more. Needs podman.
set -eu
cd "$(dirname "$0")/.."

fail() { printf '%s\n' "image: $*" >&2; exit 1; }
command -v podman >/dev/null || fail "podman is missing. On Debian: apt-get install podman"
podman build --quiet --pull=never -f deploy/Containerfile -t hushed-server . >/dev/null
name=hushed-image-$$
trap 'podman rm --force "$name" >/dev/null 2>&1 || true' EXIT INT TERM
podman run --detach --name "$name" --network none --read-only --cap-drop all --tmpfs /state \
    -v "$PWD/crates/hushed-model/tests/golden/tiny/roberta:/model:ro" hushed-server \
    /model --listen 127.0.0.1:0 --cert-dir /state --json >/dev/null || fail "the image is built and does not run here"
tries=0
until podman logs "$name" 2>&1 | grep -q '"address"'; do
    tries=$((tries + 1))
    [ "$tries" -lt 60 ] || { podman logs "$name" >&2; fail "the server in the image does not serve"; }
    sleep 1
done
podman stop --time 30 "$name" >/dev/null
ended=$(podman inspect --format '{{.State.ExitCode}}' "$name")
[ "$ended" = 0 ] || fail "the server in the image ended with $ended when it was stopped"
podman images --format '{{.Repository}}:{{.Tag}}, {{.Size}}' hushed-server
