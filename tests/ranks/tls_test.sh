#!/bin/sh
# TLS between two hosts, which are two network namespaces: what goes over the wire, and who is refused.
. "$(dirname "$0")/common.sh"
script=$here/tests/ranks/secret.lua
wire=$here/tests/ranks/wire.py
new_port

# wait_for FILE TEXT: until a file has it.
wait_for() {
  for _ in $(seq 600); do
    grep -q -e "$2" "$1" 2>/dev/null && return
    sleep 0.1
  done
  fail "'$2' does not come in $1: $(cat "$1")"
}

# Certificates, their modes and what is said of them.
run "$mslua" cert make net --hosts 10.79.1.1,10.79.1.2 --days 20
expect "cert make" 0 "--tls net/config.json"
[ "$(stat -c %a net net/ca.key net/server.p12 net/client.p12 net/attach.p12 net/password | tr '\n' ' ')" = \
  "700 600 600 600 600 600 " ] || fail "modes: $(ls -la net)"
run "$mslua" cert show net
count "cert show" 3 "job net"
count "cert show" 1 "role steer"
expect "cert show" 0 "hosts 10.79.1.1, 10.79.1.2"
run "$mslua" cert show net --json
count "cert show --json" 4 '"revoked": false'
serial=$("$mslua" cert show net/server.p12 --json)
run "$mslua" cert make net
expect "cert make again" 0 ""
[ "$("$mslua" cert show net/server.p12 --json)" != "$serial" ] || fail "cert make does not make new certificates"
run "$mslua" cert show net/server.p12
expect "the same hosts" 0 "hosts 10.79.1.1, 10.79.1.2"
run "$mslua" cert make bad --hosts 'a b'
expect "a bad host" 2 "expected a name or an address"
run "$mslua" cert revoke net nothing.p12
expect "revoke what is not there" 10 "No such file"

# On one host the configuration is checked, and nothing listens.
run "$mslua" run "$script" -n 2 --tls net/config.json
expect "one host" 0 "gathered 8192 numbers, sum 101135"
chmod 644 net/server.p12
run "$mslua" run "$script" -n 2 --tls net/config.json
expect "a key that others can read" 10 "chmod 600"
chmod 600 net/server.p12
run "$mslua" run "$script" --tls missing.json
expect "a configuration that is not there" 10 "TLS configuration missing.json: No such file"
run "$mslua" run "$script" --tls net/config.json --insecure-network
expect "both" 2 "exclude each other"
run env MSLUA_TLS=net/config.json "$mslua" run "$script" --insecure-network
expect "both, one as a variable" 2 "MSLUA_TLS and --insecure-network exclude each other"

if [ "$(id -u)" != 0 ] || ! ip netns add "mslua-a-$$" 2>/dev/null; then
  echo "no right to make network namespaces: two hosts are not tested"
  finish
fi
trap 'ip netns del "mslua-a-$$"; ip netns del "mslua-b-$$"; rm -rf "$TMPDIR"' EXIT
ip netns add "mslua-b-$$"
ip link add "va$$" netns "mslua-a-$$" type veth peer name "vb$$" netns "mslua-b-$$"
ip -n "mslua-a-$$" addr add 10.79.1.1/24 dev "va$$"
ip -n "mslua-b-$$" addr add 10.79.1.2/24 dev "vb$$"
for end in a b; do
  ip -n "mslua-$end-$$" link set lo up
  ip -n "mslua-$end-$$" link set "v$end$$" up
done
in_a() { ip netns exec "mslua-a-$$" "$@"; }
in_b() { ip netns exec "mslua-b-$$" "$@"; }
worker() { in_b env MS_ROLE=MS_WORKER MS_NODE_ID=1 MS_CLUSTER_TIMEOUT=20 "$@"; }
export MS_WORKER_NUM=2 MS_SCHED_HOST=10.79.1.1 MS_SCHED_PORT=$port MS_CLUSTER_TIMEOUT=120

run in_a env MS_ROLE=MS_SCHED "$mslua" run "$script"
expect "neither TLS nor consent" 10 "--insecure-network"

# record FILE COMMAND...: what the job sends from host to host.
record() {
  (exec ip netns exec "mslua-a-$$" python3 "$wire" record "va$$" "$1") > recording.txt &
  recorder=$!
  wait_for recording.txt READY
}
recorded() {
  sleep 0.5
  kill "$recorder"
  wait "$recorder"
  run python3 "$wire" find "$1"
}

# The tutorial's way: scheduler and workers run one script, which names the configuration and gives the passwords.
mkdir tutorial
for file in ca.crt server.p12 client.p12; do cp -p "net/$file" tutorial; done
ciphers=$(tr -d '\n' << END
ECDHE-R SA-AES128-GCM-SHA256:ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES256-GCM-SHA384
:ECDHE-ECDSA-AES256-GCM-SHA384:DHE-RSA-AES128-GCM-SHA256:DHE-DSS-AES128-GCM-SHA256
:DHE-RSA-AES256-GCM-SHA384:DHE-DSS-AES256-GCM-SHA384:DHE-PSK-AES128-GCM-SHA256
:DHE-PSK-AES256-GCM-SHA384:DHE-PSK-CHACHA20-POLY1305:ECDHE-RSA-CHACHA20-POLY1305
:ECDHE-PSK-CHACHA20-POLY1305:DHE-RSA-AES128-CCM:DHE-RSA-AES256-CCM:DHE-RSA-CHACHA20-POLY1305
:DHE-PSK-AES128-CCM:DHE-PSK-AES256-CCM:ECDHE-ECDSA-AES128-CCM:ECDHE-ECDSA-AES256-CCM
:ECDHE-ECDSA-CHACHA20-POLY1305
END
)
cat > tutorial/config.json << END
{
  "server_cert_path": "server.p12",
  "crl_path": "",
  "client_cert_path": "client.p12",
  "ca_cert_path": "ca.crt",
  "cipher_list": "$ciphers",
  "cert_expire_warning_time_in_day": 90
}
END
# tutorial NAME: a job as above, with the configuration in $MSLUA_TEST_CONFIG.
tutorial() {
  export MSLUA_TEST_CONFIG="$PWD/tutorial/config.json" MSLUA_TEST_PASSWORD_FILE="$PWD/net/password"
  in_a env MS_ROLE=MS_SCHED "$mslua" run "$script" > sched.txt 2>&1 &
  scheduler=$!
  in_a env MS_ROLE=MS_WORKER MS_NODE_ID=0 "$mslua" run "$script" > first.txt 2>&1 &
  first=$!
  run worker "$mslua" run "$script"
  expect "$1: second" 0 "gathered 8192 numbers, sum 101135"
  wait "$first" || fail "$1: first: $(cat first.txt)"
  wait "$scheduler" || fail "$1: scheduler: $(cat sched.txt)"
  grep -q "connections between hosts are encrypted (TLS)" first.txt || fail "$1: $(cat first.txt)"
  unset MSLUA_TEST_CONFIG MSLUA_TEST_PASSWORD_FILE
}
record tls.bin
tutorial "the tutorial's file"
recorded tls.bin
refuse "what goes over the wire with TLS" "holds"
refuse "the passwords" "$(cat net/password)"
for file in first.txt sched.txt; do
  out=$(cat $file) code=0
  expect "the name in the tutorial's list that is misprinted" 0 'did you mean "ECDHE-RSA-AES128-GCM-SHA256"'
  expect "certificates that expire soon" 0 "server.p12: the certificate expires on"
  refuse "the password" "$(cat net/password)"
done

# The same without TLS: what a listener would see.
record plain.bin
rm -f sched.txt first.txt
in_a "$mslua" sched --insecure-network > sched.txt 2>&1 &
scheduler=$!
wait_for sched.txt "secret is in"
secret=$(sed -n 's/.*secret is in \(.*\): workers.*/\1/p' sched.txt)
(umask 077 && cat "$secret" > copy)
in_a env MS_ROLE=MS_WORKER MS_NODE_ID=0 "$mslua" run "$script" --insecure-network > first.txt 2>&1 &
first=$!
# One that speaks TLS to a job without is told so, and the job is not disturbed.
run worker "$mslua" run "$script" --tls net/config.json
expect "TLS to a plain port" 10 "the other end speaks no TLS"
run env MSLUA_JOB_SECRET_FILE="$PWD/copy" ip netns exec "mslua-b-$$" env MS_ROLE=MS_WORKER MS_NODE_ID=1 \
  "$mslua" run "$script" --insecure-network
expect "plain: second" 0 "gathered 8192"
wait "$first" || fail "plain: $(cat first.txt)"
wait "$scheduler" || fail "plain: $(cat sched.txt)"
recorded plain.bin
count "what goes over the wire without TLS" 3 "holds"
out=$(cat sched.txt) code=0
expect "TLS to a plain port is told" 0 "it speaks TLS, and this job does not"

# Who is refused, while a job waits for its last worker.
"$mslua" cert make stranger --job net > /dev/null
cp -rp net revoked && cp -rp net role && cp -rp net job && cp -rp net host
"$mslua" cert make job --job another > /dev/null
"$mslua" cert make net > /dev/null # those copied before stay good until they are revoked
cp -p net/crl.pem crl.before
(cd revoked && cp -p client.p12 ../net/lost.p12)
"$mslua" cert revoke net lost.p12 > /dev/null || fail "cert revoke"
sed -i 's/client.p12/attach.p12/' role/config.json
"$mslua" cert make host --hosts 10.79.1.9 > /dev/null
sed -i 's/"crl_path"/"verify": "host", "crl_path"/' host/config.json
rm -f sched.txt first.txt
in_a "$mslua" sched --tls net/config.json > sched.txt 2>&1 &
scheduler=$!
wait_for sched.txt "scheduler of 2 workers"
in_a env MS_ROLE=MS_WORKER MS_NODE_ID=0 "$mslua" run "$script" --tls net/config.json > first.txt 2>&1 &
first=$!
wait_for sched.txt "node: 0"
# offender NAME TEXT TOLD COMMAND...: the offender ends with 10 and says TEXT; the scheduler says TOLD.
offender() {
  name=$1 text=$2 told=$3
  shift 3
  begun=$(date +%s)
  run worker "$@"
  expect "$name" 10 "$text"
  [ $(($(date +%s) - begun)) -le 10 ] || fail "$name: it took long"
  [ -z "$told" ] || wait_for sched.txt "$told"
}
offender "unknown CA" "ca_cert_path does not hold" "does not know the CA" \
  "$mslua" run "$script" --tls stranger/config.json
offender "revoked" "it has been revoked" "has been revoked (crl_path)" "$mslua" run "$script" --tls revoked/config.json
offender "another job" 'for job "another", and this is job "net"' 'for job "another", and this is job "net"' \
  "$mslua" run "$script" --tls job/config.json
offender "another role" "for clients that attach" "for clients that attach" \
  "$mslua" run "$script" --tls role/config.json
(umask 077 && echo "any secret, as long as it has to be" > any)
offender "no TLS" "it speaks no TLS, and this job does" "it speaks no TLS, and this job does" \
  env MSLUA_JOB_SECRET_FILE="$PWD/any" "$mslua" run "$script" --insecure-network
# A scheduler with TLS makes no secret that one without could wait for.
offender "no TLS, and a secret that is not there" "it speaks no TLS, and this job does" "" \
  env MSLUA_JOB_SECRET_FILE="$PWD/nothing" "$mslua" run "$script" --insecure-network
offender "no TLS and no secret" "it speaks no TLS, and this job does" "" "$mslua" run "$script" --insecure-network
begun=$(date +%s)
run in_a env MS_ROLE=MS_WORKER MS_NODE_ID=1 MS_CLUSTER_TIMEOUT=20 "$mslua" run "$script" --insecure-network
expect "no TLS and no secret, on the scheduler's host" 10 "it speaks no TLS, and this job does"
[ $(($(date +%s) - begun)) -le 10 ] || fail "no TLS on the scheduler's host: it took long"
chmod 644 job/client.p12
offender "mode" "chmod 600" "" "$mslua" run "$script" --tls job/config.json
run in_b python3 "$wire" http "10.79.1.1:$port"
wait_for sched.txt "it speaks HTTP"
if command -v openssl > /dev/null; then
  in_b timeout 5 openssl s_client -connect "10.79.1.1:$port" < /dev/null > client.txt 2>&1
  wait_for sched.txt "it has shown no certificate"
  in_b timeout 5 openssl s_client -tls1_2 -connect "10.79.1.1:$port" < /dev/null > client.txt 2>&1
  wait_for sched.txt "version of TLS is too low"
fi
# A crowd does not keep the last worker out.
(exec ip netns exec "mslua-b-$$" python3 "$wire" crowd "10.79.1.1:$port" 20) &
crowd=$!
sleep 1
run worker "$mslua" run "$script" --tls net/config.json
expect "the last worker" 0 "gathered 8192"
kill "$crowd"
wait "$first" || fail "first: $(cat first.txt)"
wait "$scheduler" || fail "scheduler: $(cat sched.txt)"
[ "$(grep -c "it speaks no TLS" sched.txt)" -ge 1 ] || fail "$(cat sched.txt)"

# The host's name, where the file asks for it: the dialling end refuses, the accepting one is told.
rm -f sched.txt first.txt
(exec ip netns exec "mslua-a-$$" "$mslua" sched --tls host/config.json) > sched.txt 2>&1 &
scheduler=$!
wait_for sched.txt "scheduler of 2 workers"
offender "another host" 'for host 10.79.1.9, and "10.79.1.1" was dialled' "the other end refuses this one" \
  "$mslua" run "$script" --tls host/config.json
kill "$scheduler"
wait "$scheduler"

# Certificates that the command openssl has made: PKCS#12 as OpenSSL 1.1 wrote it, and PEM.
if command -v openssl > /dev/null; then
  rm -rf tutorial/*.p12 tutorial/ca.crt
  word=$(cat net/password)
  (
    cd tutorial && umask 077
    openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=ca -days 30 -keyout ca.key -out ca.crt
    chmod 644 ca.crt
    for end in server client; do
      openssl req -newkey rsa:2048 -nodes -subj "/CN=$end" -keyout $end.key -out $end.csr
      openssl x509 -req -in $end.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 30 -out $end.crt
      openssl pkcs12 -export -legacy -certpbe PBE-SHA1-RC2-40 -keypbe PBE-SHA1-3DES -in $end.crt -inkey $end.key \
        -passout "pass:$word" -out $end.p12
    done
  ) > openssl.txt 2>&1 || fail "openssl: $(cat openssl.txt)"
  tutorial "PKCS#12 of OpenSSL 1.1"
  grep -q "neither a job nor a host" first.txt sched.txt || fail "no warning that the CA alone decides"
  cat tutorial/server.crt tutorial/server.key > tutorial/server.pem
  cp tutorial/client.crt tutorial/client.pem
  chmod 600 tutorial/*.pem
  sed -i 's/\.p12"/.pem"/; s/"crl_path"/"client_key_path": "client.key", "crl_path"/' tutorial/config.json
  tutorial "PEM"
fi
no_leftovers "tls"
finish
