package auditor

import (
	"sync"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/internal/clock"
)

// progress reports to the caller of a verification every verifyEvery, also while one object is checked: a
// journal of many events takes longer than a caller waits without a message. It sends one event at a time.
type progress struct {
	node  string
	clock clock.Clock
	send  func(*perdurev1.VerifyEvent) error

	mu        sync.Mutex
	partition uint32
	keys      uint64
	err       error // of the first event that could not be sent
}

// start begins to send events; stop ends that, and blocks until the last event is sent.
func (v *progress) start() (stop func()) {
	over, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			c, cancel := v.clock.After(verifyEvery)
			select {
			case <-c:
				v.report()
			case <-over:
				cancel()
				return
			}
		}
	}()
	return func() {
		close(over)
		<-ended
	}
}

func (v *progress) report() {
	v.mu.Lock()
	defer v.mu.Unlock()
	_ = v.sayLocked(&perdurev1.VerifyEvent{NodeId: v.node,
		Kind: &perdurev1.VerifyEvent_Progress{Progress: &perdurev1.VerifyProgress{Partition: v.partition, Keys: v.keys}}})
}

// checked counts an object of a partition.
func (v *progress) checked(partition uint32) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.partition != partition {
		v.partition, v.keys = partition, 0
	}
	v.keys++
}

// say sends an event. After an error it answers that error.
func (v *progress) say(ev *perdurev1.VerifyEvent) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.sayLocked(ev)
}

func (v *progress) sayLocked(ev *perdurev1.VerifyEvent) error {
	if v.err == nil {
		v.err = v.send(ev)
	}
	return v.err
}

func (v *progress) failed() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.err
}
