#!/bin/sh
# Makes sure that Debian packages are there: "packages.sh libatomic1 slapd". As root what is missing is installed; otherwise it says what to
# install and fails. Commands are found also in /usr/sbin, where slapd lives.
set -eu
missing=
for package in "$@"; do
  [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)" = installed ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0
if ! command -v apt-get >/dev/null 2>&1; then
  echo "keyturn: please install (Debian names):$missing" >&2
  exit 1
fi
if [ "$(id -u)" != 0 ]; then
  echo "keyturn: please run first:  sudo apt-get install$missing" >&2
  exit 1
fi
echo "keyturn: installing$missing" >&2
export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2086
apt-get install -y -qq --no-install-recommends $missing >/dev/null 2>&1 || {
  apt-get update -qq >/dev/null
  apt-get install -y -qq --no-install-recommends $missing >/dev/null
}
