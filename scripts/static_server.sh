#!/bin/sh
# Builds a static `hushed-server` into dist/ and tries it in an empty root: there it has nothing but itself, as in the container of
# deploy/Containerfile. PROFILE=dev builds without optimisation.
set -eu
cd "$(dirname "$0")/.."

profile=${PROFILE:-dist}
case $profile in dev) folder=debug ;; *) folder=$profile ;; esac
host=$(rustc -vV | sed -n 's/^host: //p')
target=${CARGO_TARGET_DIR:-target}
# With a target named, flags are for the program alone and not for what runs while it is built.
RUSTFLAGS="${RUSTFLAGS:-} -C target-feature=+crt-static" cargo build --locked --profile "$profile" --target "$host" -p hushed-server
mkdir -p dist
cp "$target/$host/$folder/hushed-server" dist/hushed-server
cargo xtask third-party hushed-server dist/THIRD-PARTY.txt
cat >>dist/THIRD-PARTY.txt <<END

--------------------------------------------------------------------------------
The GNU C library, linked statically: LGPL-2.1-or-later. Its source is at https://www.gnu.org/software/libc, and the source of this
program, from which \`make static\` links it with any version of that library, is where you have this program from.
END

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT INT TERM
cp dist/hushed-server "$root/"
enter() { unshare --user --map-root-user chroot "$root" "$@"; }
enter /hushed-server --version || { echo "static_server: it does not start in an empty root (or there is no unshare here)" >&2; exit 1; }
# It says what is wrong with a folder that is not there: it has come as far as that without a library.
if enter /hushed-server /model --cert-dir / 2>"$root/said"; then exit 1; fi
grep -q /model "$root/said"
echo "dist/hushed-server is static and runs in an empty root"
