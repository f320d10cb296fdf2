#!/bin/sh
# Makes node_modules/.bin/keyturn after "npm ci": npm does not link a package's own bin. Shell, because Node 26 may still lack its libatomic1.
set -eu
cd "$(dirname "$0")/.."
mkdir -p node_modules/.bin
cat >node_modules/.bin/keyturn <<'SH'
#!/bin/sh
# Runs keyturn on the Node 26 that came with "npm ci", whatever node is in the PATH; in an image, on the image's own.
here=$(dirname "$(readlink -f "$0")")
node=$here/node
[ -x "$node" ] || node=node
# Meant for another node, or to look into this process, which holds passwords.
unset NODE_OPTIONS
exec "$node" --disable-warning=ExperimentalWarning "$here/../../src/main.ts" "$@"
SH
chmod 755 node_modules/.bin/keyturn
