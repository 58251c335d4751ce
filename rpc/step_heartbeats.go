package rpc

import (
	"perdure/api"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/id"
)

const (
	// maxBeatSteps and maxBeatDetails bound what the steps in one heartbeat report: their number, and the
	// bytes of their details.
	maxBeatSteps   = 1024
	maxBeatDetails = 1 << 20
)

// stepHeartbeats checks what steps of some tasks report.
func stepHeartbeats(steps []*perdurev1.StepHeartbeat, tasks ...*perdurev1.TaskToken) error {
	if len(steps) == 0 {
		return nil
	}
	if len(steps) > maxBeatSteps {
		return api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "heartbeats of %d steps exceed %d", len(steps), maxBeatSteps)
	}
	known := map[string]bool{}
	for _, t := range tasks {
		known[t.GetId()] = true
	}
	total := 0
	for _, s := range steps {
		if err := firstError(anyID(s.GetPromiseId()), function(s.GetName())); err != nil {
			return err
		}
		parent, _ := id.PromiseID(s.GetPromiseId()).Parent()
		total += len(s.GetDetails())
		switch {
		case !known[string(parent)]:
			return api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "step %q is of none of the tasks", short(s.GetPromiseId())).With("id", short(s.GetPromiseId()))
		case len(s.GetDetails()) > id.MaxHeartbeatBytes:
			return api.Errorf(perdurev1.Reason_REASON_PAYLOAD_TOO_LARGE, "heartbeat details of %d bytes exceed %d", len(s.GetDetails()), id.MaxHeartbeatBytes).
				With("id", short(s.GetPromiseId()))
		case total > maxBeatDetails:
			return api.Errorf(perdurev1.Reason_REASON_PAYLOAD_TOO_LARGE, "heartbeat details of %d bytes in all exceed %d", total, maxBeatDetails)
		}
	}
	return nil
}

// stepsByPartition groups heartbeats of steps by the partitions of their executions.
func (w *session) stepsByPartition(steps []*perdurev1.StepHeartbeat) map[uint32][]*perdurev1.StepHeartbeat {
	out := map[uint32][]*perdurev1.StepHeartbeat{}
	for _, s := range steps {
		p := w.s.router.PartitionOf(w.ns, s.GetPromiseId())
		out[p] = append(out[p], s)
	}
	return out
}
