package machine

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/audit"
	"perdure/fsm/histories"
	"perdure/fsm/query"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/fsm/wire"
	"perdure/recovery"
)

func importHistoryCmd(tree string, records []*perdurev1.HistoryRecord) *commandv1.Command {
	return &commandv1.Command{Namespace: ns, Id: tree, Kind: &commandv1.Command_ImportHistory{
		ImportHistory: &perdurev1.ImportHistoryRequest{Id: tree, Records: records}}}
}

func exportQuery(tree string, cursor []byte) *commandv1.Query {
	return &commandv1.Query{Id: tree, Kind: &commandv1.Query_Export{Export: &perdurev1.ExportRequest{Cursor: cursor}}}
}

// tryExport reads the records of a tree page by page; it returns nil and the rule of a refusal.
func (w *world) tryExport(tree string) (records []*perdurev1.HistoryRecord, rule string) {
	w.t.Helper()
	for cursor := []byte(nil); ; {
		reply := w.query(exportQuery(tree, cursor))
		if e := wire.QueryError(reply); e != nil {
			return nil, e.Meta["rule"]
		}
		records = append(records, reply.GetExport().Records...)
		if cursor = reply.GetExport().Cursor; len(cursor) == 0 {
			return records, ""
		}
	}
}

// export reads the records of a tree, which an edge must admit.
func (w *world) export(tree string) []*perdurev1.HistoryRecord {
	w.t.Helper()
	records, rule := w.tryExport(tree)
	if rule != "" {
		w.t.Fatalf("the export of %s is refused: %s", tree, rule)
	}
	if err := histories.Check(tree, records); err != nil {
		w.t.Fatalf("the export of %s is none: %v", tree, err)
	}
	return records
}

// imports stores a tree and reports whether it existed.
func (w *world) imports(tree string, records []*perdurev1.HistoryRecord) (existed bool) {
	w.t.Helper()
	return w.do(importHistoryCmd(tree, records)).GetImportHistory().Existed
}

func sameRecords(a, b []*perdurev1.HistoryRecord) bool {
	return slices.EqualFunc(a, b, func(x, y *perdurev1.HistoryRecord) bool { return proto.Equal(x, y) })
}

// trees makes ended trees of every kind, each in a world of its own, and calls visit with its root.
func trees(t tester, visit func(what string, w *world, tree string)) {
	t.Helper()
	for _, ops := range []string{
		"return x", "fail e:x", "step s -> x; random 8; time 5; return x", "intent s; return x", "nothing", "sleep 50; return x",
		"sleep 50; await 0", "wait go timeout=10", "promise p; return x", "signal b go 1; return x", "child g x; return x",
		"child g x; child g y; step s -> x; return x", "set; return x", "cleanup 500; step s -> x", "return " + strings.Repeat("x", 3000),
	} {
		w := newWorld(t, 1)
		v := w.begin("a", "f")
		w.commit(v, ops)
		w.pass(60)
		for _, child := range w.take("w2", 9, "g") {
			w.commit(child, "child h z; return 1")
		}
		for _, child := range w.take("w3", 9, "h") {
			w.commit(child, "fail e:z")
		}
		if strings.HasPrefix(ops, "cleanup") {
			w.do(cancelCmd("a", "why", 10))
			w.pass(20)
			w.commit(w.only("w4", state.FunctionCleanup+"f"), "return 1")
		}
		w.one(terminateCmd("a", "enough"))
		w.pass(60)
		visit(ops, w, "a")
	}
	for _, g := range []string{"a; b; c after a; d after c; e after b", "a attempts=2; b after a", "a; b after a signal s"} {
		w := newWorld(t, 1)
		w.submit("run", graphOf(g), "in")
		w.end("run", "a", "fail app:broken")
		w.pass(200)
		for range 9 {
			for _, v := range w.take("w2", 9, "a", "b", "c", "d", "e") {
				w.commit(v, "return 1")
			}
			w.one(signalCmd(w.request(), "run", "s", "1"))
		}
		w.one(terminateCmd("run", "enough"))
		w.pass(60)
		visit(g, w, "run")
	}
}

// What has ended is stored in a cluster with other partitions, where the same reads say the same and an export has the same
// records. Repeated imports change nothing, there and where it ran.
func TestImportHistory(t *testing.T) {
	trees(t, func(what string, from *world, tree string) {
		records := from.export(tree)
		to := newWorld(t, 3)
		to.begin("other", "f")
		to.now = from.now
		if to.imports(tree, records) {
			t.Errorf("%s: it existed", what)
		}
		to.sound(to.at(tree))
		if again := to.export(tree); !sameRecords(again, records) {
			t.Errorf("%s: exported as\n%v\nwas\n%v", what, again, records)
		}
		had, has := from.describe(tree), to.describe(tree)
		had.Incarnation, had.Partition, has.Partition = has.Incarnation, 0, 0
		if !proto.Equal(had, has) {
			t.Errorf("%s: described as\n%v\nwas\n%v", what, has, had)
		}
		for _, w := range []*world{to, from} {
			before := content(w.at(tree).state)
			slices.Reverse(records) // in any order
			if !w.imports(tree, records) {
				t.Errorf("%s: it did not exist", what)
			}
			if after := content(w.at(tree).state); after != before {
				t.Errorf("%s: a repeated import changes\n%s", what, difference(before, after))
			}
		}
	})
}

// An execution that is imported is answered as one that has ended here, whatever is asked of it, and deleted without a rest.
func TestImportedHistoryIsOrdinary(t *testing.T) {
	from := newWorld(t, 1)
	request := from.request()
	from.do(startCmd(request, "a", "f", "in"))
	v := from.only("w1", "f")
	from.commit(v, "child g x; step s -> x; await 0")
	from.commit(from.only("w2", "g"), "return 1")
	from.read(from.only("w1", "f"))
	from.do(terminateCmd("a", "enough"))
	to := newWorld(t, 1)
	to.begin("other", "f")
	to.now = from.now
	to.imports("a", from.export("a"))
	had, has := from.do(startCmd(from.request(), "a", "f", "in")).GetStart(), to.do(startCmd(to.request(), "a", "f", "in")).GetStart()
	if had.Incarnation = has.Incarnation; !proto.Equal(had, has) || has.Created {
		t.Errorf("a start is answered %v, where it ran %v", has, had)
	}
	for _, cmd := range []func(w *world) *commandv1.Command{
		func(w *world) *commandv1.Command { return startCmd(w.request(), "a", "other", "in") },
		func(w *world) *commandv1.Command { return signalCmd(w.request(), "a", "s", "1") },
		func(w *world) *commandv1.Command { return cancelCmd("a", "why", 0) },
		func(w *world) *commandv1.Command { return terminateCmd("a", "why") },
		func(w *world) *commandv1.Command { return terminateCmd("a:0", "why") },
		func(w *world) *commandv1.Command { return settlePromiseCmd("a", resolve, "v") },
		func(w *world) *commandv1.Command {
			return purgeCmd("a", func(r *perdurev1.PurgeRequest) { r.Force = false })
		},
	} {
		had, has := wire.ReplyError(from.one(cmd(from))), wire.ReplyError(to.one(cmd(to)))
		if (had == nil) != (has == nil) || had != nil && (had.Reason != has.Reason || had.Message != has.Message) {
			t.Errorf("%v: refused with %v, where it ran with %v", cmd(to), has, had)
		}
	}
	w := newWorld(t, 1)
	w.now = from.now
	w.imports("a", from.export("a"))
	w.now += replyRetentionMS
	if got := w.do(purgeCmd("a", func(r *perdurev1.PurgeRequest) { r.Force = false })).GetPurge().State; got != deleted {
		t.Errorf("purged: %v", got)
	}
	if left := w.left("a", 0); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	w.imports("a", from.export("a")) // the id is free again
	w.do(restartCmd(w.request(), "a", fromStart, 0))
	w.tick()
	w.commit(w.only("w1", "f"), "return again")
	if got := w.course("a"); !strings.HasSuffix(got, "completed") {
		t.Errorf("restarted: %s", got)
	}
	w.sound(w.parts[0])
	if _, rule := w.tryExport("a"); rule != histories.RuleForm {
		t.Errorf("an execution with a former incarnation is refused with %q", rule)
	}
}

// Records that are no whole tree are refused, and nothing of them is stored.
func TestImportHistoryRefused(t *testing.T) {
	from := newWorld(t, 1)
	v := from.begin("a", "f")
	from.commit(v, "child g x; step s -> x; sleep 50; await 0")
	from.commit(from.only("w2", "g"), "return 1")
	from.commit(from.only("w1", "f"), "return x")
	from.pass(60)
	good := from.export("a")
	to := newWorld(t, 2)
	to.begin("other", "f")
	to.now = from.now

	is := func(kind, id string) func(*perdurev1.HistoryRecord) bool {
		return func(rec *perdurev1.HistoryRecord) bool {
			return histories.IDOf(rec) == id && string(rec.ProtoReflect().WhichOneof(rec.ProtoReflect().Descriptor().Oneofs().Get(0)).Name()) == kind
		}
	}
	without := func(drop func(*perdurev1.HistoryRecord) bool) []*perdurev1.HistoryRecord {
		out := slices.DeleteFunc(slices.Clone(good), drop)
		if len(out) == len(good) {
			t.Fatal("nothing is dropped")
		}
		return out
	}
	changed := func(which func(*perdurev1.HistoryRecord) bool, change func(*perdurev1.HistoryRecord)) []*perdurev1.HistoryRecord {
		out := slices.Clone(good)
		n := slices.IndexFunc(out, which)
		out[n] = proto.CloneOf(out[n])
		change(out[n])
		return out
	}
	entry := func(id string, seq uint64) func(*perdurev1.HistoryRecord) bool {
		return func(rec *perdurev1.HistoryRecord) bool {
			return is("event", id)(rec) && rec.GetEvent().Entry.Seq == seq
		}
	}
	open := perdurev1.ExecutionStatus_EXECUTION_STATUS_RUNNING
	for _, c := range []struct {
		what, rule string
		// edge: the machine itself does not look.
		edge    bool
		records []*perdurev1.HistoryRecord
	}{
		{"nothing", histories.RuleTree, false, nil},
		{"without the execution", histories.RuleTree, false, without(is("execution", "a"))},
		{"a child alone", histories.RuleTree, false, without(func(r *perdurev1.HistoryRecord) bool { return histories.IDOf(r) != "a:0" })},
		{"a child's journal without the child", histories.RuleTree, false, without(is("execution", "a:0"))},
		{"a record twice", histories.RuleTree, false, append(slices.Clone(good), good[len(good)-1])},
		{"a part of another tree", histories.RuleTree, false, changed(is("promise", "a:0"), func(r *perdurev1.HistoryRecord) { r.GetPromise().Id = "b:0" })},
		{"a root with a parent below it", histories.RuleTree, false, changed(is("execution", "a"), func(r *perdurev1.HistoryRecord) {
			r.GetExecution().Parent, r.GetExecution().ParentPromise = "a:0", "a"
		})},
		{"a child without a parent", histories.RuleTree, false, changed(is("execution", "a:0"), func(r *perdurev1.HistoryRecord) {
			r.GetExecution().Parent, r.GetExecution().ParentPromise = "", ""
		})},
		{"an open execution", histories.RuleOpen, false, changed(is("execution", "a"), func(r *perdurev1.HistoryRecord) { r.GetExecution().Status = open })},
		{"an open child", histories.RuleOpen, false, changed(is("execution", "a:0"), func(r *perdurev1.HistoryRecord) { r.GetExecution().Status = open })},
		{"no status that there is", histories.RuleOpen, false, changed(is("execution", "a"), func(r *perdurev1.HistoryRecord) { r.GetExecution().Status = 77 })},
		{"a pending promise", histories.RuleForm, false, changed(is("promise", "a:0"), func(r *perdurev1.HistoryRecord) { r.GetPromise().State = "pending" })},
		{"a client's promise", histories.RuleForm, false, changed(is("promise", "a:0"), func(r *perdurev1.HistoryRecord) {
			r.GetPromise().Tags = map[string]string{"\x00client": ""}
		})},
		{"a promise for an address", histories.RuleForm, false, changed(is("promise", "a:0"), func(r *perdurev1.HistoryRecord) { r.GetPromise().Target = "\x00http://x" })},
		{"an unknown close policy", histories.RuleForm, false, changed(is("execution", "a:0"), func(r *perdurev1.HistoryRecord) { r.GetExecution().ClosePolicy = 99 })},
		{"an event of no kind", histories.RuleForm, false, changed(entry("a", 1), func(r *perdurev1.HistoryRecord) { r.GetEvent().Entry.Event = nil })},
		{"a child of which only the call is left", recovery.OrphanInvokes, true, without(func(r *perdurev1.HistoryRecord) bool {
			return histories.IDOf(r) == "a:0" && r.GetPromise() == nil
		})},
		{"a child without its promise", recovery.OrphanTasks, true, without(is("promise", "a:0"))},
		{"an execution without its promise", recovery.OrphanTasks, true, without(is("promise", "a"))},
		{"without the first event", "", true, without(entry("a", 0))},
		{"without an event", "", true, without(entry("a", 2))},
		{"without the last event", audit.RuleHeader, true, without(entry("a:0", 1))},
		{"another end", "", true, changed(is("execution", "a"), func(r *perdurev1.HistoryRecord) {
			r.GetExecution().Status = perdurev1.ExecutionStatus_EXECUTION_STATUS_FAILED
		})},
		{"another result than the journal's", audit.RuleEnding, true, changed(is("promise", "a"), func(r *perdurev1.HistoryRecord) {
			r.GetPromise().Value = recovery.AppendOutcome(nil, recovery.Outcome{Data: []byte("y")})
		})},
		{"a node of what is no graph", audit.RuleGraph, true, append(slices.Clone(good), &perdurev1.HistoryRecord{Kind: &perdurev1.HistoryRecord_Node{Node: &perdurev1.HistoryNode{Id: "a"}}})},
		{"an operation that the journal does not know", "", true, append(slices.Clone(good), func() *perdurev1.HistoryRecord {
			rec := proto.CloneOf(good[slices.IndexFunc(good, is("promise", "a:0"))])
			rec.GetPromise().Id = "a:0.7"
			return rec
		}())},
	} {
		err := histories.Check("a", c.records)
		if err == nil {
			t.Errorf("%s: nothing is found", c.what)
			continue
		}
		if e := histories.Refusal(ns, "a", err); c.rule != "" && e.Meta["rule"] != c.rule {
			t.Errorf("%s: %v by rule %q, must be %q", c.what, e, e.Meta["rule"], c.rule)
		}
		if !c.edge {
			if e := to.refused(importHistoryCmd("a", c.records), perdurev1.Reason_REASON_RULE_BROKEN); e.Meta["rule"] != c.rule {
				t.Errorf("%s: refused by rule %q, must be %q", c.what, e.Meta["rule"], c.rule)
			}
		}
	}
	to.refused(importHistoryCmd("a:0", good), perdurev1.Reason_REASON_BAD_ID)
	early := newWorld(t, 1)
	if e := early.refused(importHistoryCmd("a", good), perdurev1.Reason_REASON_RULE_BROKEN); e.Meta["rule"] != ruleHistoryClock {
		t.Errorf("what ends in the future: %v", e)
	}
	to.imports("a", good)
}

// An id that has another history keeps it, whether that is open, has ended or is being purged.
func TestImportHistoryExists(t *testing.T) {
	from := newWorld(t, 1)
	v := from.begin("a", "f")
	from.commit(v, "child g x; return x")
	if _, rule := from.tryExport("a"); rule != histories.RuleBusy {
		t.Errorf("the export before a tick is refused with %q", rule)
	}
	from.tick()
	if _, rule := from.tryExport("a"); rule != histories.RuleOpen {
		t.Errorf("the export with an open child is refused with %q", rule)
	}
	from.commit(from.only("w2", "g"), "return 1")
	good := from.export("a")
	const conflict = perdurev1.Reason_REASON_ID_CONFLICT

	w := newWorld(t, 1)
	w.unaudited, w.effectsUnchecked, w.now = true, true, from.now
	v = w.begin("a", "f")
	if _, rule := w.tryExport("a"); rule != histories.RuleOpen {
		t.Errorf("the export of an open execution is refused with %q", rule)
	}
	w.refused(importHistoryCmd("a", good), conflict)
	w.commit(v, strings.TrimSuffix(strings.Repeat("child g x; ", 300), "; "))
	for _, child := range w.take("w2", 300, "g") {
		w.commit(child, "return 1")
	}
	w.commit(v, "return x")
	w.refused(importHistoryCmd("a", good), conflict)
	if got := w.purge("a"); got != begun {
		t.Fatalf("purged: %v", got)
	}
	if _, rule := w.tryExport("a"); rule != histories.RuleBusy {
		t.Errorf("an export during a purge is refused with %q", rule)
	}
	if e := wire.ReplyError(w.one(importHistoryCmd("a", good))); e == nil || e.Reason != perdurev1.Reason_REASON_TRY_LATER {
		t.Errorf("during a purge: %v", e)
	}
	w.tick()
	w.imports("a", good)
	w.sound(w.parts[0])

	// A child's id that somebody uses is left alone.
	for _, cmd := range []*commandv1.Command{createPromiseCmd("a", 1<<40), clientCmd(clientPromise("a:0", 1<<40))} {
		w := newWorld(t, 1)
		w.now = from.now
		w.do(cmd)
		if e := w.refused(importHistoryCmd("a", good), conflict); e.Meta["id"] != cmd.Id || e.Meta["rule"] != histories.RuleExists {
			t.Errorf("%s exists: %v", cmd.Id, e)
		}
	}
	// Of the same execution that ended otherwise.
	other := newWorld(t, 1)
	other.now = from.now
	other.imports("a", good)
	for _, change := range []func(*perdurev1.HistoryRecord){
		func(r *perdurev1.HistoryRecord) {
			if p := r.GetPromise(); p != nil {
				p.Param = []byte("another")
			}
		},
		func(r *perdurev1.HistoryRecord) {
			if e := r.GetExecution(); e != nil {
				e.Digest = "another"
			}
		},
		func(r *perdurev1.HistoryRecord) {
			if e := r.GetEvent(); e != nil {
				e.Entry.TimeMs--
			}
		},
	} {
		var records []*perdurev1.HistoryRecord
		for _, rec := range good {
			rec = proto.CloneOf(rec)
			change(rec)
			records = append(records, rec)
		}
		other.refused(importHistoryCmd("a", records), conflict)
	}
}

// A page has what its bound admits, and the pages of a tree have each record once. A cursor of another tree or namespace reads
// nothing of that.
func TestExportPages(t *testing.T) {
	w := newWorld(t, 1)
	w.unaudited = true
	for _, tree := range []string{"a", "b"} {
		v := w.begin(tree, "f")
		for range 5 {
			w.commit(v, "child g "+strings.Repeat("x", query.PageBytes/4))
		}
		for _, child := range w.take("w2", 9, "g") {
			w.commit(child, "return "+strings.Repeat("y", query.PageBytes/4))
		}
		w.commit(v, "return x")
	}
	pages, seen := 0, map[string]bool{}
	var cursor []byte
	for more := true; more; more = len(cursor) > 0 {
		page := w.query(exportQuery("a", cursor)).GetExport()
		size := 0
		for _, rec := range page.Records {
			text := rec.String()
			if seen[text] {
				t.Errorf("twice: %.100s", text)
			}
			seen[text] = true
			size += proto.Size(rec)
		}
		if size > 2*query.PageBytes {
			t.Errorf("a page has %d bytes", size)
		}
		pages++
		cursor = page.Cursor
	}
	if pages < 3 || len(seen) != len(w.export("a")) {
		t.Errorf("%d pages, %d records", pages, len(seen))
	}
	for n, bad := range [][]byte{
		{99}, {0, 1}, append([]byte{0}, keys.Of(keys.Header, ns, "b")...), append([]byte{2}, keys.Of(keys.Promise, "another", "a")...),
		append([]byte{0}, keys.After(keys.Of(keys.Header, ns, "a"))...), {255, 255},
		append([]byte{4}, keys.Of(keys.Journal, ns, "a")...),
	} {
		if e := wire.QueryError(w.query(exportQuery("a", bad))); e == nil || e.Reason != perdurev1.Reason_REASON_BAD_REQUEST {
			t.Errorf("cursor %d is answered %v", n, e)
		}
	}
}

// Whatever is changed in one field of a tree: it is refused, or stored as a state that breaks no rule of an audit.
func TestImportHistoryChanged(t *testing.T) {
	admitted, refused := 0, 0
	try := func(what, tree string, records []*perdurev1.HistoryRecord) {
		if err := histories.Check(tree, records); err != nil {
			_ = histories.Refusal(ns, tree, err)
			refused++
			return
		}
		w := newWorld(t, 1)
		w.now = max(w.now, histories.Latest(records))
		if e := wire.ReplyError(w.one(importHistoryCmd(tree, records))); e != nil {
			t.Errorf("%s: the edge admits what the machine refuses: %v", what, e)
		}
		w.sound(w.parts[0])
		admitted++
	}
	trees(t, func(what string, w *world, tree string) {
		records := w.export(tree)
		for n := range records {
			try(what, tree, slices.Delete(slices.Clone(records), n, n+1))
			for k := range alterations(records[n]) {
				altered := slices.Clone(records)
				altered[n] = proto.CloneOf(records[n])
				what := what + ": " + alterations(altered[n])[k]()
				try(what, tree, altered)
			}
		}
	})
	t.Logf("%d changes admitted, %d refused", admitted, refused)
	if admitted == 0 || refused == 0 {
		t.Errorf("%d changes admitted, %d refused", admitted, refused)
	}
}

// alterations are those of each single field of a message, at any depth; each returns what it has done.
func alterations(m proto.Message) (out []func() string) {
	var walk func(path string, r protoreflect.Message)
	walk = func(path string, r protoreflect.Message) {
		all := r.Descriptor().Fields()
		for i := range all.Len() {
			f := all.Get(i)
			name := fmt.Sprintf("%s.%s", path, f.Name())
			switch {
			case f.IsMap() || f.IsList():
				if r.Has(f) {
					out = append(out, func() string { r.Clear(f); return name + " cleared" })
				}
			case f.Message() != nil:
				if r.Has(f) {
					walk(name, r.Mutable(f).Message())
					out = append(out, func() string { r.Clear(f); return name + " cleared" })
				}
			default:
				for _, v := range values(f) {
					out = append(out, func() string { r.Set(f, v); return fmt.Sprintf("%s = %v", name, v) })
				}
			}
		}
	}
	walk("", m.ProtoReflect())
	return out
}

// values are some of a field's, extreme ones among them.
func values(f protoreflect.FieldDescriptor) []protoreflect.Value {
	switch f.Kind() {
	case protoreflect.StringKind:
		return []protoreflect.Value{protoreflect.ValueOfString(""), protoreflect.ValueOfString("a:0"), protoreflect.ValueOfString("x\x00")}
	case protoreflect.BytesKind:
		return []protoreflect.Value{protoreflect.ValueOfBytes(nil), protoreflect.ValueOfBytes([]byte{255, 1, 2})}
	case protoreflect.BoolKind:
		return []protoreflect.Value{protoreflect.ValueOfBool(true), protoreflect.ValueOfBool(false)}
	case protoreflect.EnumKind:
		return []protoreflect.Value{protoreflect.ValueOfEnum(0), protoreflect.ValueOfEnum(3), protoreflect.ValueOfEnum(99)}
	case protoreflect.Uint32Kind:
		return []protoreflect.Value{protoreflect.ValueOfUint32(0), protoreflect.ValueOfUint32(1), protoreflect.ValueOfUint32(1<<32 - 1)}
	case protoreflect.Uint64Kind:
		return []protoreflect.Value{protoreflect.ValueOfUint64(0), protoreflect.ValueOfUint64(1), protoreflect.ValueOfUint64(1<<64 - 1)}
	case protoreflect.Int64Kind:
		return []protoreflect.Value{protoreflect.ValueOfInt64(0), protoreflect.ValueOfInt64(1), protoreflect.ValueOfInt64(-1)}
	}
	return nil
}

// BenchmarkImportHistory imports a tree of 10,000 children.
func BenchmarkImportHistory(b *testing.B) {
	w := newWorld(b, 1)
	w.unaudited, w.effectsUnchecked = true, true
	v := w.begin("a", "f")
	const n = 10_000
	for range n / 100 {
		w.commit(v, strings.TrimSuffix(strings.Repeat("child g x; ", 100), "; "))
		for _, child := range w.take("w2", 100, "g") {
			w.commit(child, "return 1")
		}
	}
	w.commit(v, "return x")
	records := w.export("a")
	b.ReportMetric(float64(len(records)), "records")
	b.ReportMetric(float64(proto.Size(&perdurev1.ImportHistoryRequest{Records: records})), "bytes")
	for b.Loop() {
		b.StopTimer()
		to := newWorld(b, 1)
		to.unaudited, to.effectsUnchecked, to.now = true, true, w.now
		b.StartTimer()
		to.imports("a", records)
	}
}

// BenchmarkCheckHistory checks the same tree, as the edge does.
func BenchmarkCheckHistory(b *testing.B) {
	w := newWorld(b, 1)
	w.unaudited, w.effectsUnchecked = true, true
	v := w.begin("a", "f")
	for range 100 {
		w.commit(v, strings.TrimSuffix(strings.Repeat("child g x; ", 100), "; "))
		for _, child := range w.take("w2", 100, "g") {
			w.commit(child, "return 1")
		}
	}
	w.commit(v, "return x")
	records := w.export("a")
	for b.Loop() {
		if err := histories.Check("a", records); err != nil {
			b.Fatal(err)
		}
	}
}
