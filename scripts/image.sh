#!/bin/sh
# Builds the image without Docker: "image.sh [--tag NAME] [--output FILE.tar]". Needs root and a checkout after "npm ci".
#
# BASE   the Debian image to stand on (default debian:bookworm-slim). Where it cannot be pulled, or with BASE=debootstrap, the base is made
#        from Debian's packages once and kept in ${XDG_CACHE_HOME:-~/.cache}/keyturn-e2e; remove that file to have newer packages.
# MIRROR the Debian mirror for it (default: the one that this machine's apt uses)
# With Docker, "docker build ." does the same.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/keyturn-e2e
base=${BASE:-debian:bookworm-slim}
suite=bookworm
mirror=${MIRROR:-$(apt-get indextargets --format '$(REPO_URI) $(RELEASE)' 'Created-By: Packages' | sed -n "s,/* $suite\$,,p" | head -n 1)}
version=$(sed -n 's/^  "version": "\(.*\)",$/\1/p' "$root/package.json")
tag=keyturn:$version
output=
while [ $# -gt 0 ]; do
  case $1:${2:+given} in
    --tag:given) tag=$2; shift 2 ;;
    --output:given) output=$2; shift 2 ;;
    *) sed -n '2,7p' "$0" >&2; exit 2 ;;
  esac
done

if [ "$(id -u)" != 0 ]; then
  echo "keyturn: building the image needs root (or use: docker build .)" >&2
  exit 1
fi
if [ ! -x "$root/node_modules/node/bin/node" ]; then
  echo "keyturn: run npm ci first: the image takes its packages and Node from node_modules" >&2
  exit 1
fi
sh "$root/scripts/packages.sh" buildah debootstrap

# The base of Debian's own packages as a tar file, under a name that is taken only when it is whole.
make_rootfs() { # FILE
  work=$(mktemp -d "${TMPDIR:-/tmp}/kt-base.XXXXXX")
  # Debian's debootstrap mounts /proc in its target.
  trap 'umount -l "$work/rootfs/proc" 2>/dev/null || true; rm -rf "$work"' EXIT
  [ -n "$mirror" ] || { echo "keyturn: run apt-get update first, or name a Debian mirror in MIRROR" >&2; return 1; }
  echo "keyturn: making a Debian base with debootstrap, once; this takes a minute" >&2
  debootstrap --variant=minbase --include=ca-certificates,libatomic1,libstdc++6 "$suite" "$work/rootfs" "$mirror" >"$work/log" 2>&1 || {
    tail -n 5 "$work/log" >&2
    return 1
  }
  cat >"$work/rootfs/etc/apt/sources.list" <<LIST
deb $mirror $suite main
deb $mirror $suite-updates main
deb ${mirror%/debian}/debian-security $suite-security main
LIST
  chroot "$work/rootfs" sh -c 'apt-get update && DEBIAN_FRONTEND=noninteractive apt-get upgrade -y' >"$work/log" 2>&1 || {
    tail -n 5 "$work/log" >&2
    return 1
  }
  # What debian:*-slim leaves out too. Licences (copyright files) stay.
  find "$work/rootfs/usr/share/doc" -type f ! -name copyright -delete
  find "$work/rootfs/usr/share/doc" -empty -delete
  rm -rf "$work/rootfs/usr/share/man" "$work/rootfs/usr/share/info" "$work/rootfs/usr/share/locale" \
    "$work/rootfs/var/lib/apt/lists" "$work/rootfs/var/cache/apt" "$work/rootfs/var/cache/debconf" "$work/rootfs/var/log" "$work/rootfs/etc/machine-id"
  mkdir -p "$work/rootfs/var/lib/apt/lists/partial" "$work/rootfs/var/cache/apt/archives/partial" "$work/rootfs/var/log"
  tar -C "$work/rootfs" --one-file-system --sort=name -cf "$1.$$" .
  mv "$1.$$" "$1"
  umount -l "$work/rootfs/proc" 2>/dev/null || true
  rm -rf "$work"
  trap - EXIT
}

bootstrapped_base() { # prints the name of the image
  mkdir -p "$cache"
  rootfs=$cache/debian-$suite-rootfs.tar
  [ -f "$rootfs" ] || make_rootfs "$rootfs"
  name=localhost/keyturn-base:$suite-$(stat -c %Y "$rootfs")
  if ! buildah inspect --type image "$name" >/dev/null 2>&1; then
    container=$(buildah from scratch)
    buildah add -q "$container" "$rootfs" / >/dev/null
    buildah commit -q "$container" "$name" >/dev/null
    buildah rm "$container" >/dev/null
  fi
  echo "$name"
}

if [ "$base" = debootstrap ]; then
  base=$(bootstrapped_base)
elif ! buildah pull -q "$base" >/dev/null 2>&1; then
  echo "keyturn: $base cannot be pulled from here" >&2
  base=$(bootstrapped_base)
fi
revision=$(git -C "$root" rev-parse HEAD 2>/dev/null || echo unknown)
created=$(git -C "$root" log -1 --format=%cI 2>/dev/null || date -u +%Y-%m-%dT%H:%M:%SZ)
buildah bud -q --isolation chroot --layers=false --pull-never -t "$tag" -f "$root/Dockerfile" --build-arg "BASE=$base" \
  --build-arg "VERSION=$version" --build-arg "REVISION=$revision" --build-arg "CREATED=$created" "$root" >/dev/null
if [ -n "$output" ]; then
  rm -f "$output"
  buildah push -q "$tag" "docker-archive:$output:$tag" >/dev/null
fi
echo "$tag"
