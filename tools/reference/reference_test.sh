#!/bin/sh
# docs/reference is what the generator writes: reference_test.sh GENERATOR LIBRARY PAGE...
set -u
"$1" --folder "$TEST_TMPDIR/reference" --library "$2" || exit 1
diff -r "$(dirname -- "$3")" "$TEST_TMPDIR/reference" || {
  echo "docs/reference is out of date: run tools/reference/generate" >&2
  exit 1
}
