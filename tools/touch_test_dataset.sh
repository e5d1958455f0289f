#!/bin/sh
# Shows that a dataset costs one file: copies core/data/sources/mnist.cc under a new name into a fresh clone of the last
# commit, builds, and finds the new dataset in Lua, help, `mslua data` and the tests of sources. The clone is removed
# afterwards. Prints a line for each check; the exit status is 0 when all hold.
#   JOBS=N   compiles N files at once (default: as many as there are cores)
set -u

source=$(dirname -- "$(dirname -- "$(readlink -f -- "$0")")")
folder=$(mktemp -d) || exit 4
# shellcheck disable=SC2329 # called by the trap
finish() {
  status=$?
  (cd "$folder/mslua" && bazel clean --expunge) >/dev/null 2>&1
  chmod -R u+w "$folder" 2>/dev/null
  rm -rf "$folder"
  exit "$status"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

git -c safe.directory="$source" clone -q --no-local "$source" "$folder/mslua" || exit 4
root=$folder/mslua
# shellcheck source=tools/build.sh
. "$root/tools/build.sh"
set_cache
cd "$root" || exit 4
sed -e 's/MSLUA_SOURCE(mnist)/MSLUA_SOURCE(touched)/' -e 's/"MnistDataset"/"TouchedDataset"/' \
  -e 's/"MNIST"/"Touched"/' -e 's/"mnist"/"touched"/' core/data/sources/mnist.cc >core/data/sources/touched.cc
changed=$(git status --porcelain)
[ "$changed" = "?? core/data/sources/touched.cc" ] || fail "more than one file is new: $changed"
run_bazel build --symlink_prefix=.build/touch- --jobs="${JOBS:-auto}" //verbs:mslua //core/data:sources_test \
  >&2 </dev/null || fail "the build failed; its messages stand above"
mslua=$root/.build/touch-bin/verbs/mslua

failed=0
# check NAME TEXT COMMAND ...: the command succeeds and its output has the text.
check() {
  name=$1 text=$2
  shift 2
  if output=$("$@" 2>&1) && case $output in *"$text"*) true ;; *) false ;; esac; then
    echo "ok: $name"
  else
    echo "FAILED: $name: expected '$text' in: $output"
    failed=1
  fi
}
repl() { printf '%s\n' "$1" | "$mslua" repl; }

check "help of the verb" "|touched PATH" "$mslua" help data
check "the stand-in" "" "$mslua" data make touched "$folder/data" --samples 100
check "verify" "touched train  100 samples" "$mslua" data verify touched "$folder/data"
check "the class in Lua" "100" repl "print(ms.dataset.TouchedDataset('$folder/data'):get_dataset_size())"
check "its help" "ms.dataset.TouchedDataset(dataset_dir, usage = \"train\"" repl "?ms.dataset.TouchedDataset"
check "its name in the list" "TouchedDataset" repl "?ms.dataset"
check "a misspelt field" "did you mean 'usage'?" \
  repl "print(pcall(ms.dataset.TouchedDataset, { dataset_dir = 'd', usge = 'test' }))"
check "the tests of sources" "PASSED" "$root/.build/touch-bin/core/data/sources_test"
exit "$failed"
