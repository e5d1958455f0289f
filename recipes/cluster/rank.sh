#!/bin/sh
# What mpirun_hosts.sh starts on each host: sets what differs from host to host, then becomes the rank.
set -eu
export NCCL_SOCKET_IFNAME="${NCCL_SOCKET_IFNAME:-lo}" # the interface between the hosts: eth0, or a subnet
exec "${MSLUA:-mslua}" train "$@"
