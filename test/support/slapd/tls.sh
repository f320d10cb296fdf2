#!/usr/bin/env bash
# Make a throw-away certificate authority and the certificates that the
# directory fixtures use.  Nothing here is secret and nothing is committed:
# the files are made anew in the work directory of each test run.
#
#   tls.sh WORK        make WORK/tls/{ca,server,sha1,wrongname,client,other-ca,expired}.{crt,key}
#
# ca.crt        root that signed everything below except other-ca
# server.crt    SAN: localhost, ldap.example.test, dc1.example.test,
#               127.0.0.1, 127.0.0.10 .. 127.0.0.29, ::1
# wrongname.crt signed by ca, but only for wrong.example.test
# sha1.crt      signed by ca with SHA-1, right names
# expired.crt   signed by ca, right names, validity ended
# client.crt    client certificate, subject CN=svc-client,dc=example,dc=test
# other-ca.crt  an authority that signed none of these (for refusal tests)
#
# P-256 keys: making the whole set takes well under a second.
set -euo pipefail
work=${1:?usage: tls.sh WORK}
dir=$work/tls
[[ -s $dir/server.crt ]] && { echo "$dir"; exit 0; }
mkdir -p "$dir"
umask 077
cd "$dir"

san="DNS:localhost,DNS:ldap.example.test,DNS:dc1.example.test,DNS:dc1,IP:127.0.0.1,IP:::1"
for i in $(seq 10 29); do san+=",IP:127.0.0.$i"; done

key()  { openssl ecparam -name prime256v1 -genkey -noout -out "$1.key" 2>/dev/null; }
root() {                                     # NAME SUBJECT
  key "$1"
  openssl req -new -x509 -key "$1.key" -sha256 -days 30 -subj "$2" -out "$1.crt" \
    -addext 'basicConstraints=critical,CA:TRUE' -addext 'keyUsage=critical,keyCertSign,cRLSign'
}
leaf() {                                     # NAME SUBJECT EXT-LINES [openssl x509/ca options...]
  local name=$1 subj=$2 ext=$3; shift 3
  key "$name"
  openssl req -new -key "$name.key" -subj "$subj" -out "$name.csr"
  printf 'basicConstraints=critical,CA:FALSE\nkeyUsage=critical,digitalSignature\n%b\n' "$ext" >"$name.ext"
  openssl x509 -req -in "$name.csr" -CA ca.crt -CAkey ca.key -CAcreateserial -sha256 \
    -extfile "$name.ext" -out "$name.crt" "$@" 2>/dev/null
  rm -f "$name.csr" "$name.ext"
}

root ca       '/DC=test/DC=example/CN=Test CA'
root other-ca '/DC=test/DC=example/CN=Other CA'
leaf server    '/DC=test/DC=example/CN=ldap.example.test'  "extendedKeyUsage=serverAuth\nsubjectAltName=$san" -days 30
leaf sha1      '/DC=test/DC=example/CN=ldap.example.test'  "extendedKeyUsage=serverAuth\nsubjectAltName=$san" -days 30 -sha1
leaf wrongname '/DC=test/DC=example/CN=wrong.example.test' 'extendedKeyUsage=serverAuth\nsubjectAltName=DNS:wrong.example.test' -days 30
leaf client    '/DC=test/DC=example/CN=svc-client'         'extendedKeyUsage=clientAuth' -days 30

# An expired certificate: "openssl x509 -req" cannot set dates in 3.0, "openssl ca" can.
key expired
openssl req -new -key expired.key -subj '/DC=test/DC=example/CN=ldap.example.test' -out expired.csr
cat >mini-ca.cnf <<CNF
[ca]
default_ca=d
[d]
dir=.
database=mini-ca.db
serial=mini-ca.srl
new_certs_dir=.
default_md=sha256
policy=p
x509_extensions=e
unique_subject=no
[p]
domainComponent=optional
commonName=supplied
[e]
basicConstraints=critical,CA:FALSE
keyUsage=critical,digitalSignature
extendedKeyUsage=serverAuth
subjectAltName=$san
CNF
: >mini-ca.db; echo 1000 >mini-ca.srl
openssl ca -batch -config mini-ca.cnf -cert ca.crt -keyfile ca.key -in expired.csr -out expired.crt \
  -startdate 20200101000000Z -enddate 20200201000000Z -notext -preserveDN 2>/dev/null
rm -f expired.csr mini-ca.* 1000.pem
chmod 0644 ./*.crt
echo "$dir"
