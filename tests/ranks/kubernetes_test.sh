#!/bin/sh
# recipes/cluster/kubernetes: the manifest names only what the program knows, and its pods train. A pod is played by
# processes in a PID namespace of their own, where the program is PID 1; two network namespaces are the nodes.
. "$(dirname "$0")/common.sh"
manifest=$here/recipes/cluster/kubernetes/job.yaml
new_port

# variables ROLE: what the manifest sets in the container of that name, a NAME=VALUE a line; NAME= where each pod has
# its own.
variables() {
  awk -v role="$1" '
    $1 == "-" && $2 == "name:" && $3 == role { found = 1 }
    /^---/ { found = 0 }
    !found { next }
    /resources:/ { exit }
    match($0, /\{ name: [A-Z_]+, value: .* \}/) {
      text = substr($0, RSTART, RLENGTH)
      name = text; sub(/^\{ name: /, "", name); sub(/,.*/, "", name)
      value = text; sub(/.*value: /, "", value); sub(/ \}$/, "", value); gsub(/"/, "", value)
      print name "=" value
    }
    $1 == "-" && $2 == "name:" && $3 ~ /^[A-Z_]+$/ { print $3 "=" }' "$manifest"
}

known=$("$mslua" help environment | sed -n 's/^  \([A-Z_]*\) .*/\1/p')
for role in sched worker; do
  [ "$(variables $role | wc -l)" -ge 8 ] || fail "$role: variables: $(variables $role)"
  for name in $(variables $role | sed 's/=.*//'); do
    printf '%s\n' "$known" | grep -qx "$name" || fail "$role: mslua does not read $name"
  done
done
[ "$(variables worker | grep '^MS_NODE_ID')" = MS_NODE_ID= ] || fail "workers have one MS_NODE_ID"
[ "$(variables sched | sed -n 's/MS_WORKER_NUM=//p')" = "$(sed -n 's/^  completions: //p' "$manifest")" ] ||
  fail "as many workers as the scheduler waits for"
flags=$("$mslua" help train)
for flag in $(grep 'args:' "$manifest" | grep -o -e '--[a-z]*' | sort -u); do
  printf '%s\n' "$flags" | grep -q -e "^  $flag " || fail "mslua train has no $flag"
done
codes=$("$mslua" help exit-codes)
for code in $(sed -n 's/.*onExitCodes.*values: \[\(.*\)\].*/\1/p' "$manifest" | tr -d ,); do
  printf '%s\n' "$codes" | grep -q "^  $code  " || fail "mslua has no exit code $code"
done

# The image has the libraries that the program is linked with; what those need comes with their packages.
libraries=$(sed 's/#.*//' "$here/recipes/cluster/kubernetes/Dockerfile")
for needed in $(objdump -p "$mslua" | sed -n 's/^ *NEEDED *//p'); do
  package=$(dpkg-query -S "*/x86_64-linux-gnu/$needed" 2>/dev/null | sed -n '1s/:.*//p')
  # The sanitizers' libraries are in a build of tools/sanitize alone.
  case $package in libc6 | libgcc-s1 | libasan* | libubsan* | libtsan*) continue ;; esac
  printf '%s\n' $libraries | grep -qx "${package:-none}" || fail "the image lacks $needed, of '$package'"
done

if [ "$(id -u)" != 0 ] || ! unshare --pid --fork --mount-proc true 2>/dev/null ||
  ! ip netns add "mslua-a-$$" 2>/dev/null; then
  echo "no right to make PID and network namespaces: pods are not played"
  finish
fi
trap 'ip netns del "mslua-a-$$"; ip netns del "mslua-b-$$"; rm -rf "$TMPDIR"' EXIT
ip netns add "mslua-b-$$"
ip link add "va$$" netns "mslua-a-$$" type veth peer name "vb$$" netns "mslua-b-$$"
for node in "a 10.79.2.1" "b 10.79.2.2"; do
  ip -n "mslua-${node% *}-$$" addr add "${node#* }/24" dev "v${node% *}$$"
  ip -n "mslua-${node% *}-$$" link set lo up
  ip -n "mslua-${node% *}-$$" link set "v${node% *}$$" up
done
"$mslua" cert make tls --job train > /dev/null || fail "cert make"
# The pods have what the manifest puts into the secret, and not the CA's key.
mkdir secret
for file in $(grep -o -e '--from-file=tls/[^ ]*' "$manifest" | sed 's/.*=//'); do
  cp -p "$file" secret || fail "$file"
done
[ ! -e secret/ca.key ] && [ -e secret/config.json ] || fail "the secret: $(ls secret)"
recipe=$here/tests/ranks/tiny.lua

# pod NAME NODE ROLE ID: the container of that role, as PID 1. $pod is its process.
pod() {
  (
    # shellcheck disable=SC2046 # a variable a word
    exec ip netns exec "mslua-$2-$$" unshare --pid --fork --mount-proc --kill-child env $(variables "$3") \
      MS_NODE_ID="$4" MS_WORKER_NUM=3 MS_SCHED_HOST=10.79.2.1 MS_SCHED_PORT="$port" MS_RECOVERY_PATH="$PWD/recovery" \
      XDG_CACHE_HOME="$PWD/scratch" OMP_NUM_THREADS=1 MS_CLUSTER_TIMEOUT=120 \
      "$mslua" train "$recipe" --out "$PWD/train" --tls "$PWD/secret/config.json" epochs="$epochs"
  ) > "$1.txt" 2>&1 &
  pod=$!
}

# end NAME CODE: the pod ends with that code.
end() {
  wait "$2"
  code=$? out=$(cat "$1.txt")
  expect "$1" "$3" ""
}

# init POD: the program in it.
init() { pgrep -P "$1" -x mslua; }

# steps: how many loss lines the run has.
steps() { grep -c '^epoch' train/rank_0.log 2>/dev/null; }
wait_for_steps() {
  for _ in $(seq 600); do
    [ "$(steps)" -gt "${1:-0}" ] 2>/dev/null && return
    sleep 0.1
  done
  fail "no step: $(cat ./*.txt)"
}

# A pod is killed and made again: the job ends well, and each step stands in the log once.
epochs=30000
pod sched a sched sched && sched=$pod
pod worker_0 a worker 0 && worker_0=$pod
pod worker_1 b worker 1 && worker_1=$pod
pod worker_2 b worker 2 && worker_2=$pod
wait_for_steps 100
kill -KILL "$(init "$worker_1")"
wait "$worker_1"
pod worker_1 b worker 1 && worker_1=$pod
end worker_0 "$worker_0" 0
end worker_1 "$worker_1" 0
end worker_2 "$worker_2" 0
end sched "$sched" 0
[ "$(steps)" = "$(grep '^epoch' train/rank_0.log | sort -u | wc -l)" ] || fail "steps stand twice in the log"
[ "$(steps)" = "$epochs" ] || fail "$(steps) steps"

# The end of pods: SIGTERM to PID 1 saves, and says so by its code.
rm -rf train recovery
epochs=100000000
pod sched a sched sched && sched=$pod
pod worker_0 a worker 0 && worker_0=$pod
pod worker_1 b worker 1 && worker_1=$pod
pod worker_2 b worker 2 && worker_2=$pod
wait_for_steps 100
inits=$(for one in $worker_0 $worker_1 $worker_2; do init "$one"; done)
# shellcheck disable=SC2086 # a process a word
kill -TERM $inits
end worker_0 "$worker_0" 75
end worker_1 "$worker_1" 75
end worker_2 "$worker_2" 75
wait "$sched"
code=$? out=$(cat sched.txt)
[ "$code" != 0 ] || fail "the scheduler of a job that is not done ended with 0: $out"
ls train/ckpt/*.ckpt > /dev/null 2>&1 || fail "nothing was saved: $(cat worker_0.txt)"
finish
