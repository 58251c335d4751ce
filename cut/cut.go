// Package cut owns the rules of a consistent cut over all partitions, which a backup copies. The rules are pure: the
// machine applies them, and nothing here stores or sends.
//
// A partition enters cut n by a command of its log, and its state behind that command is its checkpoint. The rules
// promise that the checkpoints of one cut are a state that the cluster could have been in: every message that some
// checkpoint has received is one that its sender's checkpoint has sent, and every message that was sent and not
// received is in its sender's outbox. So each message is applied exactly once after a restore.
//
// Messages and acknowledgements carry the cut of the partition that sends them. A partition applies neither before it
// has entered that cut:
//
//	sender's cut <= own cut, for each message that is applied and for each acknowledgement that trims
//
// The rule about messages keeps an effect out of a cut without its cause. The rule about acknowledgements keeps a
// message in the outbox that the receiver has applied behind its own checkpoint: trimmed before the sender's
// checkpoint, it would be in neither.
//
// The caller's loop, at the leader of a partition:
//
//	on a shipment:         need := cut.Required(have, each message's cut)
//	on an acknowledgement: need := cut.Required(have, the acknowledgement's cut)
//	if need > have { propose EnterCut(need) }
//	propose Deliver or Trim   // the machine leaves out what Admits refuses, and the loop repeats it
//
// A cut may be given up at any time: partitions that never entered it enter a later one instead. What clients and
// workers carry from one partition to another outside of messages orders nothing. A crash loses nothing that the
// states of the partitions hold.
package cut

import "fmt"

// Number numbers the cuts of a cluster; 0 is before the first.
type Number uint64

// Next returns the number of a new cut, given those of all partitions, each read after the new cut was asked for. Two
// callers that read the same numbers share one cut, which contains what was acknowledged before either began.
func Next(partitions []Number) Number {
	return Required(0, partitions...) + 1
}

// Enter returns the cut of a partition after a command to enter one. entered says that it enters the cut with this
// command: its state behind the command is its checkpoint. A cut never goes back and is entered once.
func Enter(have, asked Number) (now Number, entered bool) {
	if asked > have {
		return asked, true
	}
	return have, false
}

// Admits reports whether a partition may apply a message or an acknowledgement that was sent in a cut.
func Admits(have, sent Number) bool { return sent <= have }

// Required returns the cut that a partition must be in before it applies what was sent in these cuts.
func Required(have Number, sent ...Number) Number {
	for _, n := range sent {
		have = max(have, n)
	}
	return have
}

// End is one end of a channel: its epoch, and the last number that was given to a message or received.
type End struct{ Epoch, Last uint64 }

// Channel is one channel as the checkpoints of its two partitions have it.
type Channel struct {
	Sent, Received End
	// First is the first message in the outbox; Sent, with the next number, if the outbox is empty.
	First End
}

// Check reports why two checkpoints are not of one cut; nil if they are. Sound checkpoints fulfil:
//
//	Received <= Sent; First <= the message after Received, or Received is nothing and First is the epoch's first
func (c Channel) Check() error {
	switch {
	case after(c.Received, c.Sent):
		return fmt.Errorf("message %d of epoch %d was received, the sender is at %d of epoch %d",
			c.Received.Last, c.Received.Epoch, c.Sent.Last, c.Sent.Epoch)
	case c.First.Epoch > c.Received.Epoch && c.First.Last > 1, c.First.Epoch == c.Received.Epoch && c.First.Last > c.Received.Last+1:
		return fmt.Errorf("the outbox begins with message %d of epoch %d, the receiver has %d of epoch %d: messages between are lost",
			c.First.Last, c.First.Epoch, c.Received.Last, c.Received.Epoch)
	}
	return nil
}

// Delivered reports whether the receiver has applied a message of the channel. A restore drops such a message from the
// outbox: the acknowledgement came after the cut.
func (c Channel) Delivered(message End) bool { return !after(message, c.Received) }

// Renewed is the epoch that the channel gets in a restored cluster, above both ends': its messages are numbered from 1.
func (c Channel) Renewed() uint64 { return max(c.Sent.Epoch, c.Received.Epoch) + 1 }

// after reports whether a is a later position in a channel than b.
func after(a, b End) bool { return a.Epoch > b.Epoch || a.Epoch == b.Epoch && a.Last > b.Last }
