#!/bin/sh
# Others, on this host and on other hosts, who try to take part in a job: none does, and the job is unharmed.
. "$(dirname "$0")/common.sh"
recipe=$here/tests/ranks/tiny.lua
intruder=$TMPDIR/intruder.py # where other users can read it
cp "$here/tests/ranks/intruder.py" "$intruder" && chmod 755 "$intruder"
new_port

# The TCP sockets on which processes of this test listen.
listeners() {
  for process in $(ours); do
    for fd in /proc/"$process"/fd/*; do
      inode=$(readlink "$fd" | sed -n 's/^socket:\[\(.*\)\]$/\1/p')
      [ -z "$inode" ] || cat /proc/"$process"/net/tcp /proc/"$process"/net/tcp6 |
        awk -v inode="$inode" '$4 == "0A" && $10 == inode { print $2 }'
    done
  done
}

# wait_for FILE TEXT: until a file has it.
wait_for() {
  for _ in $(seq 600); do
    grep -q "$2" "$1" 2>/dev/null && return
    sleep 0.1
  done
  fail "'$2' does not come in $1: $(cat "$1")"
}

# The losses of a job that nobody disturbs.
run "$mslua" train "$recipe" -n 2 --out calm
expect calm 0 "loss is"
losses=$(cat calm/rank_0.log)

# A scheduler of this host and its first worker, which waits; then intruders; then the second worker.
export MS_WORKER_NUM=2 MS_SCHED_HOST=127.0.0.1 MS_SCHED_PORT=$port MS_CLUSTER_TIMEOUT=120
"$mslua" sched > sched.txt 2>&1 &
scheduler=$!
MS_ROLE=MS_WORKER MS_NODE_ID=0 "$mslua" train "$recipe" --out unharmed > first.txt 2>&1 &
first=$!
wait_for sched.txt "node: 0"
[ -z "$(listeners)" ] || fail "processes of one host listen on TCP: $(listeners)"
socket=$(find "$TMPDIR"/mslua-* -name socket)
[ -S "$socket" ] || fail "no socket of the scheduler: $socket"
# Another program holds the port: it stands for a socket, and nobody else can hold that.
python3 -c "import socket, sys, time
s = socket.socket(); s.bind(('127.0.0.1', $port)); s.listen(); time.sleep(600)" &
squatter=$!

if [ "$(id -u)" = 0 ]; then
  chmod 755 "$TMPDIR"
  as_nobody() { setpriv --reuid=65534 --regid=65534 --clear-groups env HOME=/ TMPDIR="$TMPDIR" "$@"; }
  out=$(as_nobody python3 "$intruder" attack "$socket" 2>&1)
  count "another user" 14 "no connection (Permission denied)"
  # The stock program, started with the same words by another user, looks in a folder of its own.
  theirs=$TMPDIR/theirs
  mkdir "$theirs" && chmod 777 "$theirs"
  cp "$recipe" "$theirs" && chmod 644 "$theirs/tiny.lua"
  cp "$mslua" "$theirs/mslua" && chmod 755 "$theirs/mslua"
  run as_nobody env TMPDIR="$theirs" MS_ROLE=MS_WORKER MS_NODE_ID=1 MS_CLUSTER_TIMEOUT=2 \
    "$theirs/mslua" train "$theirs/tiny.lua" --out "$theirs/x"
  expect "the program of another user" 4 "no answer within 2s"
  # Folders that were opened by mistake: the process at the other end is asked for its user.
  chmod 777 "$TMPDIR"/mslua-* "$(dirname "$socket")" "$socket"
  out=$(as_nobody python3 "$intruder" attack "$socket" 2>&1)
  count "opened folders" 14 ": closed"
  chmod 700 "$TMPDIR"/mslua-* "$(dirname "$socket")"
  out=$(cat sched.txt) code=0
  expect "opened folders" 0 "of user 65534: this job is user 0's"
  count "opened folders" 1 "of user 65534"
else
  echo "not root: another user is not tried"
fi
# This user's own processes that are no workers.
out=$(python3 "$intruder" attack "$socket" 2>&1)
refuse "strange messages" " welcome"
MS_ROLE=MS_WORKER MS_NODE_ID=1 "$mslua" train "$recipe" --out unharmed > second.txt 2>&1 ||
  fail "second: $(cat second.txt)"
wait "$first" || fail "first: $(cat first.txt)"
wait "$scheduler" || fail "scheduler: $(cat sched.txt)"
kill "$squatter"
[ "$(cat unharmed/rank_0.log)" = "$losses" ] || fail "other losses: $(cat unharmed/rank_0.log)"
[ ! -e /tmp/intruder ] || fail "an intruder's Lua has run"
refuse "the scheduler's log" "$(printf '\033')"

# Ranks that a launcher has started listen nowhere either, and no port is known to others.
unset MS_WORKER_NUM MS_SCHED_HOST MS_SCHED_PORT
"$mslua" train "$recipe" -n 2 --out launched epochs=20000 > launched.txt 2>&1 &
launcher=$!
wait_for launched.txt "loss is"
[ -z "$(listeners)" ] || fail "ranks of mslua -n listen on TCP: $(listeners)"
kill -INT "$launcher"
wait "$launcher"

# Another host: a job on two hosts, and a third one between them.
if [ "$(id -u)" = 0 ] && ip netns add "mslua-a-$$" 2>/dev/null; then
  trap 'ip netns del "mslua-a-$$"; ip netns del "mslua-b-$$"; rm -rf "$TMPDIR"' EXIT
  ip netns add "mslua-b-$$"
  ip link add "va$$" netns "mslua-a-$$" type veth peer name "vb$$" netns "mslua-b-$$"
  ip -n "mslua-a-$$" addr add 10.78.0.1/24 dev "va$$"
  ip -n "mslua-b-$$" addr add 10.78.0.2/24 dev "vb$$"
  for end in a b; do
    ip -n "mslua-$end-$$" link set lo up
    ip -n "mslua-$end-$$" link set "v$end$$" up
  done
  in_a() { ip netns exec "mslua-a-$$" "$@"; }
  in_b() { ip netns exec "mslua-b-$$" "$@"; }
  export MS_WORKER_NUM=2 MS_SCHED_HOST=10.78.0.1 MS_SCHED_PORT=$port MSLUA_PLAINTEXT=1
  in_a "$mslua" sched > sched2.txt 2>&1 &
  scheduler=$!
  wait_for sched2.txt "scheduler of 2 workers"
  secret=$(sed -n 's/.*secret is in \(.*\): workers.*/\1/p' sched2.txt)
  [ -r "$secret" ] || fail "the scheduler does not say where the secret is: $(cat sched2.txt)"
  in_a env MS_ROLE=MS_WORKER MS_NODE_ID=0 "$mslua" train "$recipe" --out two > first2.txt 2>&1 &
  first=$!
  wait_for sched2.txt "node: 0"
  run in_b python3 "$intruder" attack "10.78.0.1:$port"
  refuse "intruders of another host" " welcome"
  refuse "intruders of another host" " accept"
  count "intruders of another host" 14 "closed"
  run in_b env MS_ROLE=MS_WORKER MS_NODE_ID=1 "$mslua" train "$recipe" --out intruder
  expect "the program without a secret" 10 "MSLUA_JOB_SECRET_FILE"
  (umask 077 && echo "another secret, as long as it has to be" > wrong)
  run in_b env MSLUA_JOB_SECRET_FILE="$PWD/wrong" MS_ROLE=MS_WORKER MS_NODE_ID=1 "$mslua" train "$recipe" --out intruder
  expect "the program with another secret" 10 "its job secret (MSLUA_JOB_SECRET_FILE) is not this job's"
  chmod 644 wrong
  run in_b env MSLUA_JOB_SECRET_FILE="$PWD/wrong" MS_ROLE=MS_WORKER MS_NODE_ID=1 "$mslua" train "$recipe" --out intruder
  expect "a secret that others can read" 10 "chmod 600"
  (umask 077 && cat "$secret" > copy)
  in_b env MSLUA_JOB_SECRET_FILE="$PWD/copy" MS_ROLE=MS_WORKER MS_NODE_ID=1 "$mslua" train "$recipe" --out two_b \
    > second2.txt 2>&1 || fail "second host: $(cat second2.txt)"
  wait "$first" || fail "first host: $(cat first2.txt)"
  wait "$scheduler" || fail "scheduler: $(cat sched2.txt)"
  [ "$(cat two/rank_0.log)" = "$losses" ] || fail "other losses on two hosts: $(cat two/rank_0.log)"
  out=$(cat sched2.txt) code=0
  expect "the refusals are told" 0 "refused a connection of 10.78.0.2:"
  count "each once" 1 "is not this job's"
  [ ! -e "$secret" ] || fail "the secret is left: $secret"
else
  echo "no right to make network namespaces: other hosts are not tried"
fi
no_leftovers intruder
finish
