package rpc

import (
	"context"

	"google.golang.org/protobuf/proto"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/histories"
	"perdure/id"
	"perdure/partition/group"
)

// Bounds of one import.
const (
	maxHistoryBytes   = 16 << 20
	maxHistoryRecords = 250_000
	// maxOutcomeBytes bounds a stored value: a payload, or a failure and what says that it is one.
	maxOutcomeBytes = id.MaxPayloadBytes + 64<<10
)

type historyService struct {
	perdurev1.UnimplementedHistoriesServer
	s *Server
}

// Export implements Histories.
func (h *historyService) Export(ctx context.Context, in *perdurev1.ExportRequest) (*perdurev1.ExportResponse, error) {
	ns, err := namespace(in.Namespace)
	if err := firstError(err, treeID(in.Id)); err != nil {
		return nil, err
	}
	reply, _, err := h.s.router.Query(ctx, group.Linearizable, &commandv1.Query{Namespace: ns, Id: in.Id, Kind: &commandv1.Query_Export{Export: in}})
	if err != nil {
		return nil, err
	}
	return reply.GetExport(), nil
}

// Import implements Histories. The whole tree is checked here, before anything is proposed.
func (h *historyService) Import(ctx context.Context, in *perdurev1.ImportHistoryRequest) (*perdurev1.ImportHistoryResponse, error) {
	ns, err := namespace(in.Namespace)
	rid, rerr := request(in.Request)
	if err := firstError(err, rerr, treeID(in.Id), historySize(in)); err != nil {
		return nil, err
	}
	for _, rec := range in.Records {
		if err := historyRecord(rec); err != nil {
			return nil, err
		}
	}
	if err := histories.Check(in.Id, in.Records); err != nil {
		return nil, histories.Refusal(ns, in.Id, err)
	}
	if in.DryRun {
		reply, _, err := h.s.router.Query(ctx, group.Linearizable, &commandv1.Query{Namespace: ns, Id: in.Id, Kind: &commandv1.Query_ImportHistory{ImportHistory: in}})
		if err != nil {
			return nil, err
		}
		return reply.GetImportHistory(), nil
	}
	cmd := &perdurev1.ImportHistoryRequest{Namespace: ns, Id: in.Id, Records: in.Records}
	reply, err := h.s.propose(ctx, &commandv1.Command{Request: rid, Namespace: ns, Id: in.Id, Kind: &commandv1.Command_ImportHistory{ImportHistory: cmd}})
	if err != nil {
		return nil, err
	}
	return reply.GetImportHistory(), nil
}

// historySize checks the size of a tree.
func historySize(in *perdurev1.ImportHistoryRequest) error {
	if n := proto.Size(in); n > maxHistoryBytes {
		return api.Errorf(perdurev1.Reason_REASON_PAYLOAD_TOO_LARGE, "history of %q: %d bytes exceed %d", in.Id, n, maxHistoryBytes).With("id", in.Id)
	}
	if n := len(in.Records); n > maxHistoryRecords {
		return api.Errorf(perdurev1.Reason_REASON_PAYLOAD_TOO_LARGE, "history of %q: %d records exceed %d", in.Id, n, maxHistoryRecords).With("id", in.Id)
	}
	return nil
}

// historyRecord checks what a record has by the limits of the requests that have made it. The values of tags are not
// those of users alone.
func historyRecord(rec *perdurev1.HistoryRecord) error {
	value := func(what string, b []byte) error {
		if len(b) > maxOutcomeBytes {
			return api.Errorf(perdurev1.Reason_REASON_PAYLOAD_TOO_LARGE, "%s of %d bytes exceeds %d", what, len(b), maxOutcomeBytes)
		}
		return nil
	}
	if e := rec.GetExecution(); e != nil {
		return firstError(anyID(e.Id), text("the function", e.Function, maxNameBytes), text("the digest", e.Digest, maxDigestBytes),
			text("the reason", e.CancelReason, maxReasonBytes), tags(e.Tags), optional(anyID, e.Parent), optional(anyID, e.ParentPromise))
	}
	if n := rec.GetNode(); n != nil {
		return firstError(anyID(n.Id), value("failure", n.Failure), value("output", n.Output))
	}
	if p := rec.GetPromise(); p != nil {
		return firstError(anyID(p.Id), value("parameter", p.Param), value("value", p.Value), text("the target", p.Target, maxNameBytes+maxDigestBytes+1))
	}
	if s := rec.GetSignal(); s != nil {
		return firstError(anyID(s.Id), name("signal", s.Name), payload("payload", s.Payload))
	}
	return nil
}

// treeID checks the id of a tree's root.
func treeID(s string) error {
	if root := id.Origin(s); root != s {
		return api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "%q is part of %q, and no tree of its own", short(s), short(root)).With("id", short(s))
	}
	return anyID(s)
}
