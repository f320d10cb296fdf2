#!/usr/bin/env bash
# A scratch OpenLDAP server on loopback.
#
#   slapd.sh start WORK PORT TLSPORT   make, start, seed, wait until ready; print KEY=VALUE lines
#   slapd.sh run   WORK PORT TLSPORT   the same server, unseeded, in the foreground (exec: the pid is yours)
#   slapd.sh seed  WORK                load the seed tree into a server that runs
#   slapd.sh stop  WORK                end it (by the pid it wrote) and wait until it is gone
#   slapd.sh kill  WORK                end it with SIGKILL (crash test); the data stay
#   slapd.sh again WORK                start it again on the same data and ports ("rerun": in the foreground)
#   slapd.sh freeze|thaw WORK          SIGSTOP / SIGCONT: connections are accepted, nothing answers
#
# Environment, all optional:
#   HOST=127.0.0.1          address to listen on (any of 127.0.0.0/8)
#   CERT=server             certificate to show: server | wrongname | expired | sha1 (tls.sh)
#   TLS_CLIENT=never        never | try | demand   client certificate
#   TLS_PRIORITY=           GnuTLS priority string, for example NORMAL:-VERS-ALL:+VERS-TLS1.2
#   TLS_REQUIRED=0          1: a simple bind without TLS gets confidentialityRequired (13)
#   ANON=read               read | auth   what an anonymous client may do (auth: bind only)
#   ANON_BIND=1             0: anonymous binds are refused (inappropriateAuthentication, 48)
#   PPOLICY=0               1: password policy overlay (default policy, and cn=strict on uid=locky)
#   HASH=0                  1: hash clear-text userPassword on the server (implies PPOLICY=1)
#   HOOK=SOCKET             send every operation to a test hook first (../slapd-hook.ts);
#                           the hook must listen before "start"
#   AD=0                    1: the auxiliary class adAccount with attributes of Active Directory accounts, tokenGroups as ordinary ones
#   NULL_BIND=0             1: a bind with a DN and an empty password succeeds (as on some other servers)
#   BULK=0                  N: also make N entries uid=bulk-1.. below ou=bulk
#   IDLE=0                  seconds after which an idle connection is closed
#   SYNC=0                  1: flush every write to disk
#   LOG=0                   slapd log level (256: one line an operation) into WORK/slapd/log
#
# Administrator: cn=admin,dc=example,dc=test / admin-secret (no access control applies).
# cn=config is open to cn=config / config-secret, so a test can change limits, ACLs
# or policies while the server runs (the change is lost at the next start).
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cmd=${1:?usage: slapd.sh start|run|rerun|seed|stop|kill|again|freeze|thaw WORK [PORT TLSPORT]}
work=$(cd "${2:?work directory}" && pwd)
dir=$work/slapd
suffix='dc=example,dc=test'

pid_of() { [[ -s $dir/pid ]] && cat "$dir/pid"; }
# gone, or ended and not yet reaped by its parent (state Z)
gone() {
  local p=$1 _ stat
  for _ in $(seq 500); do
    { read -r stat <"/proc/$p/stat"; } 2>/dev/null || return 0
    [[ ${stat##*) } == Z* ]] && return 0
    sleep 0.01
  done
  return 1
}

hook_conf() {     # SOCKET; the overlay named last sees an operation first
  printf '\noverlay sock\nextensions binddn peername connid\nsocketpath %s\nsockops bind search modify modrdn add delete\n' "$1"
}

ad_schema() {     # Debian's msuser.schema has no matching rules, so nothing could be found by its attributes
  cat <<'CONF'
attributetype ( 1.2.840.113556.1.4.656 NAME 'userPrincipalName' EQUALITY caseIgnoreMatch SYNTAX 1.3.6.1.4.1.1466.115.121.1.15 SINGLE-VALUE )
attributetype ( 1.2.840.113556.1.4.221 NAME 'sAMAccountName' EQUALITY caseIgnoreMatch SYNTAX 1.3.6.1.4.1.1466.115.121.1.15 SINGLE-VALUE )
attributetype ( 1.2.840.113556.1.4.146 NAME 'objectSid' EQUALITY octetStringMatch SYNTAX 1.3.6.1.4.1.1466.115.121.1.40 SINGLE-VALUE )
attributetype ( 1.2.840.113556.1.4.1301 NAME 'tokenGroups' EQUALITY octetStringMatch SYNTAX 1.3.6.1.4.1.1466.115.121.1.40 )
attributetype ( 1.2.840.113556.1.4.8 NAME 'userAccountControl' EQUALITY integerMatch SYNTAX 1.3.6.1.4.1.1466.115.121.1.27 SINGLE-VALUE )
objectclass ( 1.2.840.113556.1.5.9999 NAME 'adAccount' SUP top AUXILIARY MAY ( userPrincipalName $ sAMAccountName $ objectSid $ tokenGroups $ userAccountControl ) )
CONF
}

write_conf() {
  mkdir -p "$dir/db"
  : "${CERT:=server}" "${TLS_CLIENT:=never}" "${TLS_PRIORITY:=}" "${TLS_REQUIRED:=0}" "${ANON:=read}" "${ANON_BIND:=1}"
  : "${HOOK:=}" "${NULL_BIND:=0}" "${AD:=0}"
  : "${PPOLICY:=0}" "${HASH:=0}" "${BULK:=0}" "${IDLE:=0}" "${SYNC:=0}" "${LOG:=0}"
  [[ $HASH == 1 ]] && PPOLICY=1
  local speed='dbnosync'
  [[ $SYNC == 1 ]] && speed=''
  {
    for s in core cosine nis inetorgperson; do echo "include /etc/ldap/schema/$s.schema"; done
    [[ $AD == 1 ]] && ad_schema
    cat <<CONF
pidfile $dir/slapd.pid
argsfile $dir/slapd.args
modulepath /usr/lib/ldap
moduleload back_mdb
moduleload memberof
moduleload retcode
moduleload constraint
threads 8
idletimeout $IDLE
sizelimit unlimited
TLSCACertificateFile $work/tls/ca.crt
TLSCertificateFile $work/tls/$CERT.crt
TLSCertificateKeyFile $work/tls/$CERT.key
TLSVerifyClient $TLS_CLIENT
authz-regexp "^cn=([^,]+),dc=example,dc=test\$" "cn=\$1,ou=services,$suffix"
CONF
    [[ $PPOLICY == 1 ]] && echo 'moduleload ppolicy'
    [[ -n $HOOK ]] && echo 'moduleload back_sock'
    [[ $NULL_BIND == 1 ]] && echo 'allow bind_anon_cred bind_anon_dn'
    [[ -n $TLS_PRIORITY ]] && echo "TLSCipherSuite $TLS_PRIORITY"
    [[ $TLS_REQUIRED == 1 ]] && printf 'localSSF 256\nsecurity simple_bind=128\n'
    [[ $ANON_BIND == 0 ]] && echo 'disallow bind_anon'
    cat <<CONF

database config
rootdn cn=config
rootpw config-secret

database monitor

database mdb
suffix "$suffix"
rootdn "cn=admin,$suffix"
rootpw admin-secret
directory $dir/db
maxsize 268435456
$speed
index objectClass,uid,cn,member,uniqueMember,memberUid,memberOf eq
index entryUUID,entryCSN eq
limits dn.exact="cn=svc-small,ou=services,$suffix" size.soft=5 size.hard=5 size.pr=5 size.prtotal=unlimited

access to attrs=userPassword
  by dn.exact="cn=svc-manager,ou=services,$suffix" write
  by self write
  by anonymous auth
  by * none
access to *
  by dn.exact="cn=svc-manager,ou=services,$suffix" write
  by users read
  by anonymous $ANON

overlay memberof
memberof-group-oc groupOfNames
memberof-member-ad member
memberof-memberof-ad memberOf
memberof-refint true
CONF
    [[ $PPOLICY == 1 ]] && { echo; echo 'overlay ppolicy'; echo "ppolicy_default \"cn=default,ou=policies,$suffix\""
                             [[ $HASH == 1 ]] && echo 'ppolicy_hash_cleartext'; echo 'ppolicy_use_lockout'; }
    cat <<CONF

# Faults on demand: an operation (bind included) whose DN is below
# ou=faults gets the result code of the item.
overlay retcode
retcode-parent "ou=faults,$suffix"
retcode-item "cn=operations" 0x01 op=all text="injected"
retcode-item "cn=timelimit" 0x03 op=all text="injected"
retcode-item "cn=referral" 0x0a op=all text="injected" ref="ldap://127.0.0.1:1/$suffix"
retcode-item "cn=constraint" 0x13 op=all text="injected"
retcode-item "cn=busy" 0x33 op=all text="injected"
retcode-item "cn=unavailable" 0x34 op=all text="injected"
retcode-item "cn=unwilling" 0x35 op=all text="injected"
retcode-item "cn=slow" 0x00 op=all sleeptime=3
retcode-item "cn=vanish" 0x34 op=all flags=pre-disconnect
CONF
    [[ -n $HOOK ]] && hook_conf "$HOOK"
  } >"$dir/slapd.conf"
  declare -p HOOK NULL_BIND AD CERT TLS_CLIENT TLS_PRIORITY TLS_REQUIRED ANON ANON_BIND PPOLICY HASH BULK IDLE SYNC LOG >"$dir/options"
  printf '%s\n' "HOST=${HOST:-127.0.0.1}" "PORT=$1" "TLSPORT=$2" >"$dir/listen"
}

argv() {      # fills the array "args"
  # shellcheck disable=SC1091
  . "$dir/listen"; . "$dir/options"
  local sock=${dir//\//%2F}%2Fldapi
  # slapd counts CPUs and descriptors by itself; a large descriptor limit makes
  # it allocate a large table, so keep it small.
  ulimit -n 4096 2>/dev/null || true
  # It listens in this order: whoever sees the last one can use them all.
  args=(/usr/sbin/slapd -f "$dir/slapd.conf" -h "ldapi://$sock/ ldap://$HOST:$PORT/ ldaps://$HOST:$TLSPORT/" -d "$LOG")
}

ready() {
  # shellcheck disable=SC1091
  . "$dir/listen"
  local i
  for _ in $(seq 500); do
    if (exec 3<>"/dev/tcp/$HOST/$PORT") 2>/dev/null && (exec 3<>"/dev/tcp/$HOST/$TLSPORT") 2>/dev/null; then return 0; fi
    [[ -d /proc/$1 ]] || { echo 'slapd ended while starting:' >&2; /usr/sbin/slapd -T test -f "$dir/slapd.conf" -d config 2>&1 | tail -5 >&2; tail -n 5 "$dir/log" >&2; return 1; }
    sleep 0.01
  done
  echo 'slapd did not get ready in 5 s' >&2; return 1
}

spawn() {
  argv
  "${args[@]}" >>"$dir/log" 2>&1 </dev/null &
  echo $! >"$dir/pid"
  disown
  ready "$(cat "$dir/pid")"
}

seed() {
  # shellcheck disable=SC1091
  . "$dir/options"
  local sock=${dir//\//%2F}%2Fldapi
  {
    cat "$here/seed.ldif"
    if [[ $PPOLICY == 1 ]]; then
      printf '\ndn: uid=locky,ou=people,%s\nchangetype: modify\nadd: pwdPolicySubentry\npwdPolicySubentry: cn=strict,ou=policies,%s\n-\n' "$suffix" "$suffix"
    fi
    if ((BULK > 0)); then
      printf '\ndn: ou=bulk,%s\nobjectClass: organizationalUnit\nou: bulk\n' "$suffix"
      for ((i = 1; i <= BULK; i++)); do
        printf '\ndn: uid=bulk-%d,ou=bulk,%s\nobjectClass: inetOrgPerson\nuid: bulk-%d\ncn: bulk-%d\nsn: bulk\nuserPassword: bulk-%d-secret\n' "$i" "$suffix" "$i" "$i" "$i"
      done
    fi
  } | { if [[ $PPOLICY == 1 ]]; then cat; else grep -v -E '^objectClass: pwdPolicy$|^pwd[A-Z]'; fi; } \
    | ldapmodify -a -x -H "ldapi://$sock/" -D "cn=admin,$suffix" -w admin-secret >"$dir/seed.log" 2>&1 \
    || { tail -5 "$dir/seed.log" >&2; return 1; }
}

facts() {
  # shellcheck disable=SC1091
  . "$dir/listen"
  printf '%s\n' "SLAPD_PID=$(pid_of)" "LDAP_URL=ldap://$HOST:$PORT" "LDAPS_URL=ldaps://$HOST:$TLSPORT" \
    "LDAP_CA=$work/tls/ca.crt" "LDAP_SUFFIX=$suffix"
}

case $cmd in
  start|run)
    port=${3:?port}; tlsport=${4:?tls port}
    "$here/tls.sh" "$work" >/dev/null
    rm -rf "$dir"; mkdir -p "$dir"
    write_conf "$port" "$tlsport"
    if [[ $cmd == run ]]; then argv; echo $$ >"$dir/pid"; exec "${args[@]}"; fi
    spawn; seed; facts ;;
  seed)  seed ;;
  again) spawn; facts ;;
  rerun) argv; echo $$ >"$dir/pid"; exec "${args[@]}" ;;
  stop|kill)
    p=$(pid_of) || exit 0
    [[ -d /proc/$p && $(readlink "/proc/$p/exe") == */slapd ]] || { rm -f "$dir/pid"; exit 0; }
    if [[ $cmd == kill ]]; then kill -KILL "$p"; else kill -CONT "$p"; kill -TERM "$p"; fi
    gone "$p" || { kill -KILL "$p"; gone "$p"; }
    rm -f "$dir/pid" ;;
  freeze)
    p=$(pid_of); kill -STOP "$p"
    until [[ $(<"/proc/$p/stat") == *') '[Tt]' '* ]]; do sleep 0.005; done ;;   # it takes effect a little later
  thaw)   kill -CONT "$(pid_of)" ;;
  *) echo "unknown command: $cmd" >&2; exit 2 ;;
esac
