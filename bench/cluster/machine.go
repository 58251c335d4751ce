package cluster

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// Machine is what all processors of the machine had done at an instant.
type Machine struct {
	At   time.Time
	Busy time.Duration
}

// ReadMachine reads /proc/stat.
func ReadMachine() (Machine, error) {
	data, err := os.ReadFile("/proc/stat")
	if err != nil {
		return Machine{}, err
	}
	line, _, _ := strings.Cut(string(data), "\n")
	fields := strings.Fields(line)
	if len(fields) < 8 {
		return Machine{}, fmt.Errorf("/proc/stat begins with %q", line)
	}
	m := Machine{At: time.Now()}
	for _, i := range []int{1, 2, 3, 6, 7} { // user, nice, system, irq, softirq; not idle, waiting or stolen
		n, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil {
			return Machine{}, fmt.Errorf("/proc/stat: %w", err)
		}
		m.Busy += time.Duration(n) * tick
	}
	return m, nil
}

// Others returns what others than our processes used since before, in percent of one core. ours is our CPU time.
func (m Machine) Others(before Machine, ours time.Duration) float64 {
	d := m.At.Sub(before.At)
	if d <= 0 {
		return 0
	}
	return 100 * max(0, float64(m.Busy-before.Busy-ours)) / float64(d)
}
