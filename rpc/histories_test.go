package rpc_test

import (
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/embed"
)

// exported reads the records of a tree.
func exported(t *testing.T, w *world, id string) (records []*perdurev1.HistoryRecord) {
	t.Helper()
	api := perdurev1.NewHistoriesClient(w.conn)
	for cursor := []byte(nil); ; {
		page, err := api.Export(soon(t), &perdurev1.ExportRequest{Namespace: w.ns, Id: id, Cursor: cursor})
		if err != nil {
			t.Fatal(err)
		}
		records = append(records, page.Records...)
		if cursor = page.Cursor; len(cursor) == 0 {
			return records
		}
	}
}

// A tree that breaks a rule or a limit is refused at the edge, a dry run stores nothing, and a quota of bytes that is used up
// refuses an import.
func TestImportHistory(t *testing.T) {
	w := connect(t, startNode(t, func(c *embed.Config) { c.Quota = []string{"full=bytes:1B"} }))
	w.start("ended", "unserved")
	if _, err := w.executions.Terminate(soon(t), &perdurev1.TerminateRequest{Namespace: w.ns, Id: "ended", Request: rid()}); err != nil {
		t.Fatal(err)
	}
	until(t, "the export", func() error {
		_, err := perdurev1.NewHistoriesClient(w.conn).Export(soon(t), &perdurev1.ExportRequest{Namespace: w.ns, Id: "ended"})
		return err
	})
	records := exported(t, w, "ended")
	api := perdurev1.NewHistoriesClient(w.conn)
	imported := func(change func(*perdurev1.ImportHistoryRequest)) (*perdurev1.ImportHistoryResponse, error) {
		req := &perdurev1.ImportHistoryRequest{Namespace: w.ns + "-copy", Id: "ended", Request: rid()}
		for _, rec := range records {
			req.Records = append(req.Records, proto.CloneOf(rec))
		}
		change(req)
		return api.Import(soon(t), req)
	}
	at := func(r *perdurev1.ImportHistoryRequest, kind string) *perdurev1.HistoryRecord {
		return r.Records[slices.IndexFunc(r.Records, func(rec *perdurev1.HistoryRecord) bool {
			return rec.ProtoReflect().WhichOneof(rec.ProtoReflect().Descriptor().Oneofs().Get(0)).Name() == protoreflect.Name(kind)
		})]
	}
	before := proposed(t, w)
	for _, c := range []struct {
		what   string
		reason perdurev1.Reason
		change func(*perdurev1.ImportHistoryRequest)
	}{
		{"no id", badID, func(r *perdurev1.ImportHistoryRequest) { r.Id = "" }},
		{"the id of a child", bad, func(r *perdurev1.ImportHistoryRequest) { r.Id = "ended:0" }},
		{"a short request id", bad, func(r *perdurev1.ImportHistoryRequest) { r.Request = &perdurev1.RequestID{Id: big(15)} }},
		{"no records", broken, func(r *perdurev1.ImportHistoryRequest) { r.Records = nil }},
		{"an open execution", broken, func(r *perdurev1.ImportHistoryRequest) {
			at(r, "execution").GetExecution().Status = perdurev1.ExecutionStatus_EXECUTION_STATUS_RUNNING
		}},
		{"an execution without its promise", broken, func(r *perdurev1.ImportHistoryRequest) {
			r.Records = slices.DeleteFunc(r.Records, func(rec *perdurev1.HistoryRecord) bool { return rec.GetPromise() != nil })
		}},
		{"a journal without an event", broken, func(r *perdurev1.ImportHistoryRequest) {
			at(r, "event").GetEvent().Entry.Seq = 7
		}},
		{"a long function", bad, func(r *perdurev1.ImportHistoryRequest) { at(r, "execution").GetExecution().Function = long(257) }},
		{"65 tags", tooMany, func(r *perdurev1.ImportHistoryRequest) { at(r, "execution").GetExecution().Tags = manyTags(65) }},
		{"a large value", tooLarge, func(r *perdurev1.ImportHistoryRequest) { at(r, "promise").GetPromise().Value = big(maxPayload + 1<<20) }},
		{"a large tree", tooLarge, func(r *perdurev1.ImportHistoryRequest) {
			for range 5 {
				r.Records = append(r.Records, &perdurev1.HistoryRecord{Kind: &perdurev1.HistoryRecord_Signal{Signal: &perdurev1.HistorySignal{Id: "ended", Payload: big(maxPayload)}}})
			}
		}},
		{"many records", tooLarge, func(r *perdurev1.ImportHistoryRequest) {
			for range 250_001 {
				r.Records = append(r.Records, r.Records[0])
			}
			for i := range r.Records {
				r.Records[i] = &perdurev1.HistoryRecord{}
			}
		}},
	} {
		_, err := imported(c.change)
		refused(t, c.what, err, c.reason)
	}
	if n := proposed(t, w); n != before {
		t.Errorf("%d commands were proposed", n-before)
	}
	dry := func(r *perdurev1.ImportHistoryRequest) { r.DryRun = true }
	none := func(*perdurev1.ImportHistoryRequest) {}
	for i, existed := range []bool{false, true} {
		for range 2 {
			if got, err := imported(dry); err != nil || got.Existed != existed {
				t.Errorf("dry run %d: %v, %v", i, got, err)
			}
		}
		if got, err := imported(none); err != nil || got.Existed != existed {
			t.Errorf("import %d: %v, %v", i, got, err)
		}
	}
	w.ns += "-copy"
	if again := exported(t, w, "ended"); !slices.EqualFunc(again, records, func(a, b *perdurev1.HistoryRecord) bool { return proto.Equal(a, b) }) {
		t.Errorf("exported as %v, was %v", again, records)
	}
	_, err := imported(func(r *perdurev1.ImportHistoryRequest) { r.Records[0].GetExecution().Digest = "another" })
	if err == nil {
		t.Error("another history of the id is stored")
	}
	// The first command of a namespace finds all of the quota.
	for _, want := range []bool{true, false} {
		_, err := imported(func(r *perdurev1.ImportHistoryRequest) { r.Namespace = "full" })
		if want && err != nil {
			t.Errorf("within its quota: %v", err)
		}
		if !want {
			refused(t, "above its quota", err, perdurev1.Reason_REASON_QUOTA_EXCEEDED)
		}
	}
}
