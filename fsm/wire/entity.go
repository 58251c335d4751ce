package wire

import (
	perdurev1 "perdure/api/perdure/v1"
	"perdure/entity"
	"perdure/fsm/state"
)

// Bounds of a batch: operations, and bytes of their input, unless the first one has more.
const (
	batchOperations = 64
	batchBytes      = 1 << 20
)

// EntityBatch is what a worker runs of an entity next; nil if nothing can run. After a failed attempt it is one
// operation, so that one which ends its worker fails alone.
func EntityBatch(e state.Entity) *perdurev1.EntityBatch {
	most := batchOperations
	if e.Failures > 0 {
		most = 1
	}
	b, ok := e.Batch(most, batchBytes)
	if !ok {
		return nil
	}
	out := &perdurev1.EntityBatch{Id: string(b.Entity), Version: b.Version, Exists: b.Exists, Value: b.Value, Lane: b.Lane}
	for _, o := range b.Operations {
		sender := o.Origin.ID
		if o.Origin.Kind == entity.PartyClient {
			sender = "client"
		}
		out.Operations = append(out.Operations, &perdurev1.EntityOperation{
			Request: o.Request, Name: o.Name, Input: o.Input, Call: o.Call, Sender: sender})
	}
	return out
}
