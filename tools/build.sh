# Read by ./mslua and ./tools/test: packages, caches and Bazel for the clone at $root. POSIX sh.
# Everything that a clone makes stands in $root/.build; what clones share is in the user's cache.

fail() {
  echo "mslua: error: $*" >&2
  exit 4
}

# The folder that clones share: the first that can be written of XDG_CACHE_HOME, HOME/.cache and the clone's own.
# Without a usable HOME Bazel keeps its output below it too.
set_cache() {
  mkdir -p "$root/.build" 2>/dev/null && [ -w "$root/.build" ] ||
    fail "cannot write $root/.build; fix: clone into a folder that you own"
  case $root in *[[:space:]]*) fail "Bazel builds in no folder with a space in its path; fix: move $root" ;; esac
  # Earlier versions let Bazel make links in .build that took the places of its files: .build/mslua in a clone of that
  # name, .build/lock in one named lock.
  for link in "$root/.build"/*; do
    case ${link##*/} in run-* | test-* | dev-* | fuzz-*) ;; *) [ ! -L "$link" ] || rm -f "$link" ;; esac
  done
  bazel_startup=
  cache=
  for folder in "${XDG_CACHE_HOME:-}" "${HOME:+$HOME/.cache}" "$root/.build/cache"; do
    case $folder in /*) ;; *) continue ;; esac
    if mkdir -p "$folder/mslua/bazel" 2>/dev/null && [ -w "$folder/mslua/bazel" ]; then
      cache=$folder/mslua
      break
    fi
  done
  [ -n "$cache" ] || fail "no cache folder can be written; fix: set XDG_CACHE_HOME to a folder that you own"
  if [ -z "${HOME:-}" ] || ! mkdir -p "$HOME/.cache/bazel" 2>/dev/null || [ ! -w "$HOME/.cache/bazel" ]; then
    bazel_startup=--output_user_root=$cache/output
  fi
}

# Installs what tools/packages.txt names and this machine lacks; without the rights to, prints the one line that does.
install_packages() {
  if ! command -v dpkg-query >/dev/null; then
    command -v bazel >/dev/null ||
      fail "no Debian packages and no bazel here; fix: use Debian 12, or install what tools/packages.txt names"
    return 0
  fi
  wanted=$(sed 's/#.*//' "$root/tools/packages.txt")
  # shellcheck disable=SC2086 # one word a package
  have=$(dpkg-query -W -f='${db:Status-Status}/${Package}\n' $wanted 2>/dev/null)
  missing=
  for package in $wanted; do
    case "
$have
" in
      *"
installed/$package
"*) ;;
      *) missing="$missing $package" ;;
    esac
  done
  [ -n "$missing" ] || return 0

  if [ "$(id -u)" = 0 ]; then
    sudo=
  elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
    sudo="sudo -n"
  else
    fail "packages are missing; fix: sudo apt-get install -y$missing"
  fi
  echo "mslua: installing$missing" >&2
  apt="$sudo env DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-install-recommends"
  # A fresh image has no package lists, and a stale list names files that are gone.
  # shellcheck disable=SC2086
  { $apt install $missing || { $apt update && $apt install $missing; }; } >&2 </dev/null ||
    fail "packages could not be installed; fix: sudo apt-get update && sudo apt-get install -y$missing"
}

# bazel COMMAND ARGS... in the clone, with the shared disk cache; progress at once on a terminal, else now and then.
# Each caller gives --symlink_prefix a name of its own that ends in a dash: Bazel appends bin, out, testlogs and the
# name of the clone's folder, and no such link may take the place of a file in .build or of another caller's link.
run_bazel() {
  command=$1
  shift
  seconds=15
  [ -t 2 ] && seconds=0.2
  (
    cd "$root" || exit 4
    exec bazel ${bazel_startup:+"$bazel_startup"} "$command" --disk_cache="$cache/bazel" --jobs=auto \
      --show_progress --show_progress_rate_limit=$seconds "$@"
  )
}

# Makes $program from //verbs:mslua, one build at a time, output to stderr. The stamp is older than the build, so a
# source saved meanwhile counts as newer.
build_program() {
  root=$(CDPATH='' cd -- "$root" && pwd -P) || exit 4
  program=$root/.build/mslua
  stamp=$root/.build/mslua.stamp
  set_cache
  exec 9>"$root/.build/lock"
  flock -n 9 || {
    echo "mslua: waiting for another build of this clone" >&2
    flock 9
  }
  source=$(newer_source)
  if [ -n "$source" ]; then
    install_packages 9>&-
    [ -x "$program" ] && why="${source#"$root"/} is newer" || why="the first time takes minutes, after that seconds"
    echo "mslua: building ($why)" >&2
    : >"$stamp.new"
    # Bazel names one of its links after the clone's folder: the prefix keeps it apart from the files of .build.
    run_bazel build --symlink_prefix=.build/run- --show_result=0 --ui_event_filters=-info //verbs:mslua \
      >&2 </dev/null 9>&- ||
      fail "the build failed; its messages stand above"
    if ! cmp -s "$root/.build/run-bin/verbs/mslua" "$program"; then
      cp -f "$root/.build/run-bin/verbs/mslua" "$program.new" && mv -fT "$program.new" "$program" ||
        fail "cannot write $program"
    fi
    mv -f "$stamp.new" "$stamp"
  fi
  exec 9>&-
}
