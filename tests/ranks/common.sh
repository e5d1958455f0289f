# Read by the tests of this folder: $1 is the program. POSIX sh.
here=$PWD
mslua=$here/$1
cd "$TEST_TMPDIR" || exit 1
# One compute thread a rank: the tests' ranks outnumber the cores.
export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive
unset XDG_RUNTIME_DIR
# Paths of sockets are short, those of tests need not be.
TMPDIR=$(mktemp -d /tmp/mslua-test-XXXXXX) || exit 1
export TMPDIR
trap 'rm -rf "$TMPDIR"' EXIT
failed=0

fail() {
  echo "FAILED: $*"
  failed=1
}

# expect NAME CODE TEXT: the last command ended with CODE, and its output (in $out) has TEXT.
expect() {
  [ "$code" = "$2" ] || fail "$1: exit code $code, expected $2: $out"
  case $out in
    *"$3"*) ;;
    *) fail "$1: expected '$3' in: $out" ;;
  esac
}

# refuse NAME TEXT: the output does not have TEXT.
refuse() {
  case $out in
    *"$2"*) fail "$1: did not expect '$2' in: $out" ;;
  esac
}

# count NAME N TEXT: N lines of the output have TEXT.
count() {
  got=$(printf '%s\n' "$out" | grep -c -F -- "$3")
  [ "$got" = "$2" ] || fail "$1: $got lines with '$3', expected $2: $out"
}

# run COMMAND...: its output, stderr included, in $out, its exit code in $code.
run() {
  out=$("$@" 2>&1)
  code=$?
}

# new_port: $port is another one with each call (at most 16), which no test beside this one has: a test holds the lock
# of its ports until its processes have ended. Those above 32767 are the system's to give.
ports=0
new_port() {
  [ "$ports" != 0 ] || hold_ports
  port=$((10000 + range * 16 + ports))
  ports=$((ports + 1))
}
hold_ports() {
  mkdir -p -m 1777 /tmp/mslua-test-ports
  range=$(($$ % 1400))
  until (: > "/tmp/mslua-test-ports/$range") 2> /dev/null && exec 9> "/tmp/mslua-test-ports/$range" && flock -n 9; do
    range=$(((range + 1) % 1400))
  done
}

# The processes of the program that this test has started, rank $1 only if it is given.
export MSLUA_TEST_MARK=$$
ours() {
  for process in $(pgrep -x mslua); do
    variables=$(cat "/proc/$process/environ" 2>/dev/null | tr '\0' '\n') || continue
    printf '%s\n' "$variables" | grep -qx "MSLUA_TEST_MARK=$MSLUA_TEST_MARK" || continue
    [ -z "${1:-}" ] || printf '%s\n' "$variables" | grep -qx "MSLUA_RANK=$1" || continue
    printf '%s ' "$process"
  done
}

# No process of the program, and nothing that it made in the folder of sockets.
no_leftovers() {
  left=$(ours)
  [ -z "$left" ] || fail "$1: processes are left: $left"
  "$mslua" ps > /dev/null 2>&1 # takes away where one could attach to processes that were killed
  left=$(find "$TMPDIR"/mslua-* -mindepth 1 2>/dev/null)
  [ -z "$left" ] || fail "$1: left in the folder of sockets: $left"
}

finish() {
  [ "$failed" = 0 ] && echo ok
  exit "$failed"
}
