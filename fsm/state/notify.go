package state

import "perdure/fsm/state/keys"

// Notification says when the next listeners of a settled promise are notified, and from which address on. A promise
// has one exactly while it is settled and has listeners.
type Notification struct {
	AtMS int64
	// From is empty at the first address.
	From string
}

// Encode is the inverse of DecodeNotification.
func (n Notification) Encode() []byte {
	e := encoder{}
	e.i64(n.AtMS)
	e.str(n.From)
	return e.b
}

// DecodeNotification reads a stored notification.
func DecodeNotification(b []byte) (Notification, error) {
	d := decoder{b: b}
	n := Notification{AtMS: d.i64(), From: d.str()}
	return n, d.end()
}

// ReadNotification reads what is left of a settled promise's listeners. ok is false if nothing is left. The error is of
// the storage, or a *CorruptError.
func ReadNotification(r Reader, ns, objectID string) (n Notification, ok bool, err error) {
	key := keys.Of(keys.Notify, ns, objectID)
	b, ok, err := r.Get(key)
	if err != nil || !ok {
		return Notification{}, false, err
	}
	n, err = DecodeNotification(b)
	if err != nil {
		return Notification{}, false, &CorruptError{What: "notification", Key: key, Detail: err.Error()}
	}
	return n, true, nil
}
