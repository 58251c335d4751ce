package partition

import (
	"sync"

	perdurev1 "perdure/api/perdure/v1"
)

// verifyProgress tells the caller of a verification every verifyEvery how far it is, also while one object is judged:
// a journal of many events takes longer than a caller bears silence. It sends one event at a time.
type verifyProgress struct {
	n    *Node
	send func(*perdurev1.VerifyEvent) error

	mu        sync.Mutex
	partition uint32
	keys      uint64
	err       error // of the first event that could not be sent
}

// start begins to tell; stop ends that and waits for the last event.
func (v *verifyProgress) start() (stop func()) {
	over, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			c, cancel := v.n.clock.After(verifyEvery)
			select {
			case <-c:
				v.tell()
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

func (v *verifyProgress) tell() {
	v.mu.Lock()
	defer v.mu.Unlock()
	_ = v.sayLocked(&perdurev1.VerifyEvent{NodeId: v.n.identity.NodeID,
		Kind: &perdurev1.VerifyEvent_Progress{Progress: &perdurev1.VerifyProgress{Partition: v.partition, Keys: v.keys}}})
}

// judged counts an object of a partition.
func (v *verifyProgress) judged(partition uint32) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.partition != partition {
		v.partition, v.keys = partition, 0
	}
	v.keys++
}

// say sends an event. After an error it answers that error.
func (v *verifyProgress) say(ev *perdurev1.VerifyEvent) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.sayLocked(ev)
}

func (v *verifyProgress) sayLocked(ev *perdurev1.VerifyEvent) error {
	if v.err == nil {
		v.err = v.send(ev)
	}
	return v.err
}

func (v *verifyProgress) failed() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.err
}
