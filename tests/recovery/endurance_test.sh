#!/bin/sh
# Each fault of tests/recovery/endurance for a short time, and what it refuses.
. tests/ranks/common.sh
endurance=$here/tests/recovery/endurance

# holds NAME FLAGS...: the results are those of the uninterrupted run, and the rest that the fault asks for.
holds() {
  name=$1
  shift
  run "$endurance" "$mslua" --ranks 2 --minutes 0.3 "$@"
  expect "$name" 0 ": holds"
}
holds "pauses" --fault pause:2
holds "blips" --fault blips:5 --busy 2
holds "no fault" --fault none --set batch=8
holds "the scheduler is away" --fault away:5 --mode cluster
# A kill every 30 s costs little; kills that come more often are not to reach its rate.
run "$endurance" "$mslua" --ranks 2 --minutes 0.3 --fault kills:3
expect "kills that come too often" 1 "of the steps a second"
refuse "kills that come too often" "differ"
run "$endurance" "$mslua" --ranks 2 --minutes 0.1 --fault kills:1000
expect "a fault that does not come" 1 "ended before a fault"
run "$endurance" "$mslua" --fault kills
expect "a fault without a number" 1 "expected the fault kills:S"
run "$endurance" "$mslua" --fault away:5
expect "away without a scheduler" 1 "away is for --mode cluster"
finish
