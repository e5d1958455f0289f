#!/bin/sh
# Two hosts whose network is disturbed while they train; with "long" all that tests/recovery/networks can do but
# a crowd, with "crowd" that: it takes half an hour, since the steps in fewer turns differ by more than 2 %. Where there
# is no right to make network namespaces a line says so.
. tests/ranks/common.sh
networks=$here/tests/recovery/networks

# holds NAME FLAGS...: the job ends as uninterrupted.
holds() {
  name=$1
  shift
  run "$networks" "$mslua" --set epochs=4 --set samples=1024 --set nap=0.1 "$@"
  [ "$out" = "no right to make network namespaces: two hosts are not tested" ] && {
    echo "$out"
    finish
  }
  [ "$out" = "no nft: damaged bytes are not tested" ] && {
    echo "$out"
    return
  }
  expect "$name" 0 "held and equal"
}
if [ "$2" = crowd ]; then
  holds "a crowd" --ranks 2 --tls --fault crowd:100000 --set epochs=25000 --set nap=0
  finish
fi
holds "the link is down for a second" --ranks 2 --fault down:1
holds "the link is down for 10 seconds" --ranks 2 --fault down:10 --tls
if [ "$2" = long ]; then
  for tls in "" --tls; do
    holds "the link is down for 10 seconds" --fault down:10 $tls --trials 3
    holds "one direction is lost" --fault oneway:3 $tls --trials 3
    holds "50 flaps" --fault flaps:50 $tls --set nap=0.5
    holds "resets" --fault reset $tls --trials 3
    holds "1 Mbit/s" --fault slow $tls
    holds "damaged bytes" --ranks 2 --fault damage:20 --set nap=0.5 $tls
    holds "the link is down for good" --fault lost --set norm=false $tls --trials 3
  done
fi
finish
