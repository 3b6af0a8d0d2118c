#!/bin/sh
# with_link.sh RATE_MBPS RTT_MS MTU COMMAND…: makes the network namespaces pna (10.77.0.1) and pnb (10.77.0.2), joined by a
# link of that rate and round trip, runs COMMAND, prints the bytes carried each way, and takes them down again.
# For kernels without sch_netem. Needs root, iproute2, a C compiler and /dev/net/tun.
set -e
here=$(cd "$(dirname "$0")" && pwd)
built="$here/../../../out/tunlink"
mkdir -p "$(dirname "$built")"
[ -x "$built" ] || cc -O2 -Wall -o "$built" "$here/tunlink.c"
rate=$1 rtt=$2 mtu=$3
shift 3
ip netns add pna
ip netns add pnb
"$built" pna pnb "$rate" "$rtt" "$mtu" &
link=$!
trap 'kill $link 2>/dev/null; wait $link 2>/dev/null || true; ip netns del pna; ip netns del pnb' EXIT INT TERM
sleep 0.3
"$@"
