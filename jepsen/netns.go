package jepsen

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"
)

// ErrNoNetwork says that network namespaces cannot be used here, and why.
var ErrNoNetwork = errors.New("network namespaces cannot be used")

// CheckNetns returns nil when this process can make network namespaces, otherwise an error that wraps
// ErrNoNetwork and says what is missing.
func CheckNetns() error {
	switch {
	case runtime.GOOS != "linux":
		return fmt.Errorf("%w: they are a thing of Linux", ErrNoNetwork)
	case os.Geteuid() != 0:
		return fmt.Errorf("%w: that needs root", ErrNoNetwork)
	}
	if _, err := exec.LookPath("ip"); err != nil {
		return fmt.Errorf("%w: the command ip (iproute2) is missing", ErrNoNetwork)
	}
	return nil
}

// netPrefix begins the name of everything that the harness makes of the network. The owner's process id
// follows, so that a later run knows which names are unused.
const netPrefix = "pj"

// wires is a bridge and, for each node, a network namespace whose only cable goes to it. The harness itself
// is at the bridge.
type wires struct {
	name   string // of the bridge; the other names begin with it
	subnet string // "10.77.5"
	nodes  int

	mu    sync.Mutex
	muted map[[2]int]bool // who does not reach whom
}

var (
	// newNetwork is held while a network is made, so that the next one sees its addresses.
	newNetwork sync.Mutex
	// networks is how many networks this process has made.
	networks int
)

// newWires makes the network, or nothing. It blocks while another is made.
func newWires(ctx context.Context, nodes int, rng *rand.Rand) (*wires, error) {
	if err := CheckNetns(); err != nil {
		return nil, err
	}
	if err := SweepNetns(ctx); err != nil {
		return nil, err
	}
	newNetwork.Lock()
	defer newNetwork.Unlock()
	used, err := ip(ctx, "-o", "-4", "addr", "show")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoNetwork, err)
	}
	w := &wires{nodes: nodes, muted: map[[2]int]bool{}}
	for range 100 {
		if s := fmt.Sprintf("10.77.%d", rng.IntN(256)); !strings.Contains(used, s+".") {
			w.subnet = s
			break
		}
	}
	if w.subnet == "" {
		return nil, fmt.Errorf("%w: every 10.77.x.0/24 is in use", ErrNoNetwork)
	}
	// Interface names have 15 bytes at most: pj, a process id in base 36 (5), two letters, the node.
	w.name = netPrefix + base36(os.Getpid()) + "-" + string([]byte{'a' + byte(networks/26%26), 'a' + byte(networks%26)})
	networks++
	if err := w.make(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %w", ErrNoNetwork, err), w.Close())
	}
	return w, nil
}

// base36 is a process id as names hold it.
func base36(pid int) string { return strconv.FormatInt(int64(pid), 36) }

func (w *wires) make(ctx context.Context) error {
	steps := [][]string{
		{"link", "add", w.name, "type", "bridge"},
		{"addr", "add", w.subnet + ".1/24", "dev", w.name},
		{"link", "set", w.name, "up"},
	}
	for i := range w.nodes {
		ns, cable := w.namespace(i), w.cable(i)
		steps = append(steps,
			[]string{"netns", "add", ns},
			[]string{"link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", ns},
			[]string{"link", "set", cable, "master", w.name},
			[]string{"link", "set", cable, "up"},
			[]string{"-n", ns, "link", "set", "lo", "up"},
			[]string{"-n", ns, "addr", "add", w.addr(i) + "/24", "dev", "eth0"},
			[]string{"-n", ns, "link", "set", "eth0", "up"})
	}
	for _, args := range steps {
		if _, err := ip(ctx, args...); err != nil {
			return err
		}
	}
	return nil
}

func (w *wires) addr(i int) string      { return fmt.Sprintf("%s.%d", w.subnet, 11+i) }
func (w *wires) namespace(i int) string { return fmt.Sprintf("%s%d", w.name, i+1) }
func (w *wires) cable(i int) string     { return w.namespace(i) }

// cut pulls a node's cable: nothing reaches it or leaves it, and no process gets an error.
func (w *wires) cut(ctx context.Context, i int) error {
	_, err := ip(ctx, "link", "set", w.cable(i), "down")
	return err
}

// join puts the cable back.
func (w *wires) join(ctx context.Context, i int) error {
	_, err := ip(ctx, "link", "set", w.cable(i), "up")
	return err
}

// nowhere is an unused hardware address. Packets to it are lost without an error.
const nowhere = "02:00:00:00:00:fe"

// mute drops everything that node i sends to node j. Both still exchange messages with all others.
func (w *wires) mute(ctx context.Context, i, j int) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.muted[[2]int{i, j}] {
		return nil
	}
	_, err := ip(ctx, "-n", w.namespace(i), "neigh", "replace", w.addr(j), "lladdr", nowhere, "dev", "eth0", "nud", "permanent")
	if err == nil {
		w.muted[[2]int{i, j}] = true
	}
	return err
}

// unmute ends mute.
func (w *wires) unmute(ctx context.Context, i, j int) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.muted[[2]int{i, j}] {
		return nil
	}
	delete(w.muted, [2]int{i, j})
	_, err := ip(ctx, "-n", w.namespace(i), "neigh", "del", w.addr(j), "dev", "eth0")
	return err
}

// Close removes the network. Namespaces end with their last process, which must be gone by now.
func (w *wires) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	return removeNet(ctx, w.name)
}

// SweepNetns removes networks whose harness is gone: it was killed before it could clean up.
func SweepNetns(ctx context.Context) error {
	out, err := ip(ctx, "-o", "link", "show", "type", "bridge")
	if err != nil {
		return err
	}
	names, err := ip(ctx, "netns", "list")
	if err != nil {
		return err
	}
	stale := map[string]bool{}
	for _, word := range strings.FieldsFunc(out+" "+names, func(r rune) bool { return strings.ContainsRune(" \t\n:@", r) }) {
		name := strings.TrimRight(word, "0123456789")
		owner, ok := strings.CutPrefix(name, netPrefix)
		owner, _, dash := strings.Cut(owner, "-")
		pid, err := strconv.ParseInt(owner, 36, 32)
		if ok && dash && err == nil && !alive(int(pid)) {
			stale[name] = true
		}
	}
	var errs []error
	for name := range stale {
		errs = append(errs, removeNet(ctx, name))
	}
	return errors.Join(errs...)
}

// removeNet removes the bridge of this name and the namespaces and cables whose names begin with it.
func removeNet(ctx context.Context, name string) error {
	var errs []error
	names, err := ip(ctx, "netns", "list")
	errs = append(errs, err)
	for line := range strings.Lines(names) {
		if ns, _, _ := strings.Cut(strings.TrimSpace(line), " "); strings.HasPrefix(ns, name) {
			// Another harness may sweep at the same time.
			if _, err := ip(ctx, "netns", "del", ns); err != nil && !strings.Contains(err.Error(), "No such file") {
				errs = append(errs, err)
			}
		}
	}
	// A namespace takes its cable along, but only when the kernel gets to it.
	links, err := ip(ctx, "-o", "link", "show")
	errs = append(errs, err)
	for line := range strings.Lines(links) {
		_, rest, _ := strings.Cut(line, ": ")
		link, _, _ := strings.Cut(rest, ": ")
		link, _, _ = strings.Cut(link, "@")
		if strings.HasPrefix(link, name) {
			if _, err := ip(ctx, "link", "del", link); err != nil && !gone(err) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// ip runs the command ip and returns what it prints.
func ip(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "ip", args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return string(out), nil
}

// gone reports that ip did not find a link: the end of its host's namespace deletes it as well.
func gone(err error) bool {
	return strings.Contains(err.Error(), "Cannot find device") || strings.Contains(err.Error(), "No such device")
}
