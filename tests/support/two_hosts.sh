#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# mpirun -n 2 over two hosts that are network namespaces with names of their own, joined by a virtual cable:
#   two_hosts.sh PROGRAM ARGUMENTS…        (as root; 'two_hosts.sh true' tells whether it works here)
set -euo pipefail
first=kvatlas-a-$$ second=kvatlas-b-$$
agent=$(mktemp)
cleanup() {
  ip netns del "$first" 2>/dev/null || true
  ip netns del "$second" 2>/dev/null || true
  rm -f "$agent"
}
trap cleanup EXIT
ip netns add "$first"
ip netns add "$second"
ip link add kva$$ netns "$first" type veth peer name kvb$$ netns "$second"
ip -n "$first" addr add 10.77.0.1/24 dev kva$$
ip -n "$second" addr add 10.77.0.2/24 dev kvb$$
for name in lo kva$$; do ip -n "$first" link set "$name" up; done
for name in lo kvb$$; do ip -n "$second" link set "$name" up; done
# Instead of ssh: mpirun gives the host's name, of which there is one, and the words of a command.
cat >"$agent" <<EOF
#!/bin/bash
shift
exec ip netns exec $second unshare --uts bash -c 'hostname second; exec "\$@"' bash sh -c "\$*"
EOF
chmod +x "$agent"
ip netns exec "$first" unshare --uts bash -c 'hostname first; exec "$@"' bash \
  mpirun --allow-run-as-root -x ASAN_OPTIONS=detect_leaks=0 --host 10.77.0.1:1,10.77.0.2:1 -n 2 \
  --mca plm_rsh_agent "$agent" --mca btl tcp,self --mca btl_tcp_if_include 10.77.0.0/24 --mca oob_tcp_if_include 10.77.0.0/24 "$@"
