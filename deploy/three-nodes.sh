#!/usr/bin/env bash
# Three nodes of one cluster on this machine, for trying things out: builds the node, starts n1, n2 and n3 on
# loopback ports, waits until they serve, and stops them in order on Ctrl-C. --help says more.
set -euo pipefail

usage() {
  cat <<'HELP'
Start a cluster of three nodes on this machine, until Ctrl-C.

  deploy/three-nodes.sh [--data DIR] [--fresh] [--base-port N] [-- NODE FLAGS…]

  --data DIR      where the nodes keep their data and logs (default ./perdure-cluster)
  --fresh         delete the data of an earlier cluster in DIR first
  --base-port N   n1 uses the ports N to N+3, n2 from N+10, n3 from N+20 (default 7400)
  NODE FLAGS      given to every node, e.g. -- --log-level debug

The data stays, so the next start continues from it. Each node logs to DIR/NAME.log.
Exit codes: 0 stopped by Ctrl-C or SIGTERM, 1 a node failed, 2 bad usage.
HELP
}

# The script writes to this copy of stderr. It closes stderr itself, because bash reports ended jobs there.
exec 4>&2
fail() { printf 'three-nodes: %s\n' "$*" >&4; exit 1; }
misuse() { printf 'three-nodes: %s\nsee deploy/three-nodes.sh --help\n' "$*" >&4; exit 2; }

data=./perdure-cluster
fresh=no
base=7400
extra=()
while (($# > 0)); do
  case $1 in
    --data) [[ -n ${2-} ]] || misuse "--data needs a folder"; data=$2; shift 2 ;;
    --data=*) data=${1#*=}; [[ -n $data ]] || misuse "--data needs a folder"; shift ;;
    --fresh) fresh=yes; shift ;;
    --base-port) [[ -n ${2-} ]] || misuse "--base-port needs a number"; base=$2; shift 2 ;;
    --base-port=*) base=${1#*=}; shift ;;
    --help | -h) usage; exit 0 ;;
    --) shift; extra=("$@"); break ;;
    *) misuse "unknown argument: $1" ;;
  esac
done
if ! [[ $base =~ ^[1-9][0-9]{3,4}$ ]] || ((base > 65512)); then
  misuse "--base-port $base: not a number from 1000 to 65512"
fi

repo=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
mkdir -p -- "$data"
data=$(cd -- "$data" && pwd)

names=(n1 n2 n3)
pids=()    # of each node; empty once it has ended
grpc=()    # addresses
http=()
gossip=()
for i in 0 1 2; do
  port=$((base + 10 * i))
  pids+=("")
  grpc+=("127.0.0.1:$port")
  http+=("127.0.0.1:$((port + 1))")
  gossip+=("127.0.0.1:$((port + 3))")
done
join=$(IFS=,; echo "${gossip[*]}")
addrs=$(IFS=,; echo "${grpc[*]}")

# The command line of node number $1, in the array "line".
node_line() {
  local i=$1
  line=("$data/perdure-node" start --node-id "${names[i]}" --data "$data/${names[i]}"
    --grpc-addr "${grpc[i]}" --http-addr "${http[i]}" --peer-addr "127.0.0.1:$((base + 10 * i + 2))" --gossip-addr "${gossip[i]}"
    --join "$join" --bootstrap-expect 3 ${extra[@]+"${extra[@]}"})
}

# Says on stdout whether node number $1 runs.
running() { [[ -n ${pids[$1]} ]] && kill -0 "${pids[$1]}" 2>/dev/null; }

# Notes that node number $1 has ended; its exit code is in "code".
reap() {
  code=0
  wait "${pids[$1]}" 2>/dev/null || code=$?
  pids[$1]=""
}

# Does a process listen at host:port $1? In a subshell, so that a refused connection ends only that.
listens() (exec 3<>"/dev/tcp/${1%:*}/${1##*:}") 2>/dev/null

# Prints the process id of node number $1 if it was started by hand, as this script says it can be; else nothing.
by_hand() {
  local pid args
  while read -r pid args; do
    if [[ $pid != "${pids[$1]}" && $args == "$data/perdure-node start --node-id ${names[$1]} "* ]]; then echo "$pid"; fi
  done < <(ps -A -o pid= -o args= 2>/dev/null)
}

# Says which nodes run that this script did not start.
print_by_hand() {
  local i pid
  for i in 0 1 2; do
    listens "${http[i]}" || continue
    pid=$(by_hand "$i")
    if [[ -n $pid ]]; then
      printf '%s was started by hand and still runs; to stop it: kill %s\n' "${names[i]}" "$pid"
    else
      printf 'something still serves at %s, where %s would; this script did not start it\n' "${http[i]}" "${names[i]}"
    fi
  done
}

# Is 200 the answer to GET /readyz at host:port $1? In a subshell, so that a refused connection ends only that.
is_ready() (
  set +e
  exec 3<>"/dev/tcp/${1%:*}/${1##*:}" || exit 1
  printf 'GET /readyz HTTP/1.0\r\nHost: %s\r\n\r\n' "$1" >&3
  read -r -t 2 -u 3 _ status _ && [[ $status == 200 ]]
) 2>/dev/null

# Says on stderr why node number $1 is not ready, as far as it says so itself.
print_not_ready() (
  printf 'three-nodes: %s is not ready after %d s, see %s:\n' "${names[$1]}" "$timeout" "$data/${names[$1]}.log" >&4
  exec 3<>"/dev/tcp/${http[$1]%:*}/${http[$1]##*:}" || exit 0
  printf 'GET /readyz HTTP/1.0\r\nHost: %s\r\n\r\n' "${http[$1]}" >&3
  while IFS= read -r -t 2 -u 3 said; do printf '%s\n' "${said%$'\r'}"; done | sed '1,/^$/d; s/^/  /' >&4
)

# Pauses so that a trap is carried out at once.
pause() { sleep "$1" & wait $! || true; }

# Stops what runs, one after the other. A second signal ends it at once.
stop_all() {
  trap 'kill_all' INT TERM
  local i left
  for i in 0 1 2; do
    running "$i" || continue
    printf 'stopping %s … ' "${names[i]}"
    kill -TERM "${pids[i]}" 2>/dev/null || true
    for ((left = 300; left > 0; left--)); do
      running "$i" || break
      pause 0.1
    done
    if running "$i"; then
      kill -KILL "${pids[i]}" 2>/dev/null || true
      reap "$i"
      printf 'killed: it did not stop within 30 s, see %s\n' "$data/${names[i]}.log"
      continue
    fi
    reap "$i"
    if ((code == 0)); then echo "stopped"; else printf 'exit code %d, see %s\n' "$code" "$data/${names[i]}.log"; fi
  done
}

kill_all() {
  local i
  for i in 0 1 2; do
    if running "$i"; then kill -KILL "${pids[i]}" 2>/dev/null || true; fi
  done
  echo "killed" >&4
  exit 1
}

asked() {
  echo
  stop_all
  print_by_hand
  echo "the data stays in $data"
  exit 0
}

# Report a node that has ended, and why. A killed one had no time to log that.
report_ended() {
  if ((code > 128)); then
    printf 'three-nodes: %s was killed by signal %d (%s)\n' "${names[$1]}" $((code - 128)) "$(kill -l $((code - 128)))" >&4
    return
  fi
  printf 'three-nodes: %s has ended (exit code %d); the end of %s:\n' "${names[$1]}" "$code" "$data/${names[$1]}.log" >&4
  tail -n 3 -- "$data/${names[$1]}.log" | sed 's/^/  /' >&4
}

# One cluster for each folder: a second one would fight for its files, or --fresh would delete them.
pidfile=$data/three-nodes.pid
if [[ -f $pidfile ]] && owner=$(<"$pidfile") && [[ $owner =~ ^[0-9]+$ ]] && kill -0 "$owner" 2>/dev/null; then
  fail "a cluster is running in $data already, started by process $owner; stop it, or choose another --data"
fi
for i in 0 1 2; do
  if listens "${http[i]}"; then
    pid=$(by_hand "$i")
    [[ -z $pid ]] || fail "${names[i]} runs already, started by hand (pid $pid); stop it first: kill $pid"
    fail "something serves at ${http[i]} already; stop it, or choose another --base-port"
  fi
done
echo $$ >"$pidfile"
trap 'rm -f -- "$pidfile"' EXIT

echo "building the node …"
(cd -- "$repo" && go build -o "$data/perdure-node" ./cmd/node) || fail "the node does not build"

if [[ $fresh == yes ]]; then
  for name in "${names[@]}"; do
    rm -rf -- "${data:?}/$name" "${data:?}/$name.log"
  done
fi

trap asked INT TERM
began=$SECONDS
# Each node gets a process group of its own, so that Ctrl-C reaches this script only, which stops them in order.
set -m
for i in 0 1 2; do
  node_line "$i"
  "${line[@]}" >>"$data/${names[i]}.log" 2>&1 </dev/null 4>&- &
  pids[i]=$!
done
set +m
# Bash reports a killed job at an arbitrary time, with its whole command line; report_ended is shorter.
exec 2>/dev/null

echo "waiting for n1, n2 and n3 …"
timeout=60
while :; do
  ready=0
  for i in 0 1 2; do
    if ! running "$i"; then
      reap "$i"
      report_ended "$i"
      stop_all
      exit 1
    fi
    if is_ready "${http[i]}"; then ready=$((ready + 1)); fi
  done
  ((ready < 3)) || break
  if ((SECONDS - began > timeout)); then
    for i in 0 1 2; do
      is_ready "${http[i]}" || print_not_ready "$i" || true
    done
    # With two of three nodes the cluster works, and the user can examine the third.
    ((ready < 2)) || break
    stop_all
    exit 1
  fi
  pause 0.2
done

cat <<TEXT

$ready of 3 nodes are ready after $((SECONDS - began)) s; data and logs are in $data
TEXT
for i in 0 1 2; do
  printf '  %s  gRPC %-15s  HTTP http://%-15s  pid %s\n' "${names[i]}" "${grpc[i]}" "${http[i]}" "${pids[i]}"
done
cat <<TEXT

  --addr $addrs

Next, in another terminal, in $repo:
  go run ./cmd/perdure cluster status --addr $addrs
  go run ./examples/orders --addr $addrs
  kill -9 ${pids[0]}     # n1 dies; the others continue
Ctrl-C stops all three; the data stays.
TEXT

while :; do
  left=0
  for i in 0 1 2; do
    [[ -n ${pids[i]} ]] || continue
    if running "$i"; then
      left=$((left + 1))
      continue
    fi
    reap "$i"
    report_ended "$i"
    node_line "$i"
    printf 'to start it again, in another terminal (then Ctrl-C there stops it, not here):\n ' >&4
    for word in "${line[@]}"; do
      if [[ $word =~ ^[A-Za-z0-9_./:,=-]+$ ]]; then printf ' %s' "$word" >&4; else printf ' %q' "$word" >&4; fi
    done
    echo >&4
  done
  if ((left == 0)); then
    print_by_hand
    fail "no node is left that was started here"
  fi
  pause 1
done
