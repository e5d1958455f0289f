#!/bin/sh
# Calls of the system on files fail while a training saves; with "long" each of them. Where there is no strace a line
# says so.
. tests/ranks/common.sh
disks=$here/tests/recovery/disks

# holds FAULT FLAGS...
holds() {
  run "$disks" "$mslua" --fault "$@"
  [ "$out" = "no strace: failing disks are not tested" ] && {
    echo "$out"
    finish
  }
  expect "$1" 0 " calls failed"
}
if [ "$2" = long ]; then
  for fault in crash EIO ENOSPC slow journal; do holds $fault; done
  finish
fi
holds crash --from 5 --every 40
holds EIO --from 7 --every 50
holds ENOSPC --from 11 --every 80
holds journal --from 3 --every 7
finish
