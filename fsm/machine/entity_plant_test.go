package machine

import (
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
	"testing"

	"perdure/entity"
	"perdure/fsm/audit"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/id"
	"perdure/recovery"
)

// entityHead changes the head of a stored entity.
func (s *plot) entityHead(entityID string, change func(*state.Entity)) {
	s.t.Helper()
	key := keys.Of(keys.Entity, ns, entityID)
	e, err := state.DecodeEntityHead(s.get(key))
	if err != nil {
		s.t.Fatal(err)
	}
	change(&e)
	s.put(key, state.EncodeEntityHead(e.State, e.EntityWork))
}

// queueUp queues so many signals of clients, with inputs of so many bytes, at an entity.
func (s *plot) queueUp(entityID string, n, size int) {
	s.t.Helper()
	for i := range n {
		item := entity.Entry{Seq: uint64(1_000 + i), Message: entity.Signal{Origin: client, Entity: entity.ID(entityID), Request: strconv.Itoa(i),
			Operation: "add", Input: make([]byte, size)}}
		s.put(keys.EntityItemOf(ns, entityID, keys.Queued, item.Seq), entity.AppendEntry(nil, item))
	}
	s.entityHead(entityID, func(e *state.Entity) { e.NextSeq = uint64(1_000 + n) })
}

// first returns the first key of an entity's list.
func (s *plot) first(entityID string, list keys.EntityList) (found []byte) {
	s.t.Helper()
	prefix := append(keys.EntityItemPrefix(ns, entityID), byte(list))
	if err := s.state.Scan(prefix, keys.After(prefix), func(key, _ []byte) bool {
		found = slices.Clone(key)
		return false
	}); err != nil || found == nil {
		s.t.Fatalf("nothing in list %d of %s (%v)", list, entityID, err)
	}
	return found
}

// The audit finds every violation that is planted in entities and critical sections, with its rule and its object.
func TestAuditFindsWhatIsPlantedInEntities(t *testing.T) {
	w := bank(t, 1)
	home := w.parts[0]
	request := w.request()
	w.do(callEntityCmd(request, "acc@answered", "add", "5"))
	w.runEntities()
	waits := w.request()
	w.do(callEntityCmd(waits, "acc@busy", "add", "5"))
	w.do(signalEntityCmd(w.request(), "acc@busy", "add", "5", 50_000))
	v := w.begin("holder", "f")
	w.commit(v, "lock acc@1,acc@2; await 0")
	v = w.resumed(v)
	w.commit(v, "ecall acc@1 add 3")
	w.do(signalEntityCmd(w.request(), "acc@2", "add", "1", 0))
	for _, within := range [][2]int{{9_000, 0}, {4, 4 << 20}} {
		s := &plot{t: t, state: home.state.Clone(), cfg: home.cfg}
		s.queueUp("acc@busy", within[0], within[1])
		if found := audited(t, s.state, s.cfg); len(found) > 0 {
			t.Fatalf("a backlog of %v within the bounds:\n%s", within, lines(found))
		}
	}
	if found := audited(t, home.state, home.cfg); len(found) > 0 {
		t.Fatalf("before anything was planted:\n%s", lines(found))
	}
	holder := func(s *plot, change func(h *entity.Holder)) {
		key := keys.HolderOf(ns, "holder", v.token.Incarnation)
		h, err := entity.DecodeHolder(s.get(key))
		if err != nil {
			s.t.Fatal(err)
		}
		change(h)
		s.put(key, entity.AppendHolder(nil, h))
	}
	answered, waiting := id.EntityCall("acc@answered", hexOf(request)), id.EntityCall("acc@busy", hexOf(waits))
	for _, c := range []struct {
		what, rule, object string
		plant              func(s *plot)
	}{
		{"an entity cut short", audit.RuleDamaged, "acc@busy", func(s *plot) {
			key := keys.Of(keys.Entity, ns, "acc@busy")
			s.put(key, s.get(key)[:5])
		}},
		{"an entity under another's key", audit.RuleMisplaced, "acc@1", func(s *plot) {
			s.put(keys.Of(keys.Entity, ns, "acc@1"), s.get(keys.Of(keys.Entity, ns, "acc@2")))
		}},
		{"an entry cut short", audit.RuleDamaged, "acc@busy", func(s *plot) {
			key := s.first("acc@busy", keys.Queued)
			s.put(key, s.get(key)[:4])
		}},
		{"an operation that is gone", audit.RuleEntity, "acc@busy", func(s *plot) { s.drop(s.first("acc@busy", keys.Queued)) }},
		{"a scheduled signal that is gone", audit.RuleEntity, "acc@busy", func(s *plot) { s.drop(s.first("acc@busy", keys.Delayed)) }},
		{"operations without an entity", audit.RuleEntity, "acc@busy", func(s *plot) { s.drop(keys.Of(keys.Entity, ns, "acc@busy")) }},
		{"more operations than an entity admits", audit.RuleBacklog, "acc@busy", func(s *plot) { s.queueUp("acc@busy", 10_000, 0) }},
		{"more bytes than an entity admits", audit.RuleBacklog, "acc@busy", func(s *plot) { s.queueUp("acc@busy", 5, 4<<20) }},
		{"a number that comes again", entity.EntryOrder, "acc@busy", func(s *plot) {
			s.entityHead("acc@busy", func(e *state.Entity) { e.NextSeq = 1 })
		}},
		{"a call without a waiter", audit.RuleEntity, "acc@busy", func(s *plot) { s.drop(keys.Of(keys.Promise, ns, waiting)) }},
		{"a task that does not wait for a worker", audit.RuleEntity, "acc@busy", func(s *plot) {
			s.task(id.EntityTask("acc@busy"), func(task *recovery.Task) {
				s.drop(keys.ReadyOf(ns, task.Target, task.RetryAt, task.ID))
				task.State, task.RetryAt = recovery.TaskHalted, 0
			})
		}},
		{"a task that is gone", audit.RuleEntity, "acc@2", func(s *plot) { s.drop(keys.Of(keys.Task, ns, id.EntityTask("acc@2"))) }},
		{"a task of another incarnation", audit.RuleEntity, "acc@2", func(s *plot) {
			s.entityHead("acc@2", func(e *state.Entity) { e.Incarnation-- })
		}},
		{"a time that is not in the index", audit.RuleEntity, "acc@busy", func(s *plot) {
			s.drop(keys.DeadlineOf(keys.DeadlineEntity, w.now+50_000, ns, "acc@busy"))
		}},
		{"a time that no entity has", audit.RuleDeadline, "acc@2", func(s *plot) {
			s.put(keys.DeadlineOf(keys.DeadlineEntity, 77, ns, "acc@2"), []byte{})
		}},
		{"a result without a deadline", audit.RuleDeadline, answered, func(s *plot) {
			s.drop(keys.DeadlineOf(keys.DeadlineAnswer, w.now+state.AnswerRetentionMS, ns, answered))
		}},
		{"a lock that its section does not know to have lost", audit.RuleSection, "holder", func(s *plot) {
			s.entityHead("acc@2", func(e *state.Entity) { e.Lock = entity.Lock{} })
		}},
		{"a section that asks and is inside", audit.RuleSection, "holder", func(s *plot) {
			holder(s, func(h *entity.Holder) { h.Phase, h.Pending = entity.Acquiring, nil })
		}},
		{"a call of no locked entity", entity.HolderPending, "holder", func(s *plot) {
			holder(s, func(h *entity.Holder) { h.Pending[0].Entity = "acc@0" })
		}},
		{"a call that was answered", audit.RuleSection, "holder", func(s *plot) {
			holder(s, func(h *entity.Holder) { h.Pending[0].Request = "holder:0" })
		}},
		{"a section of no execution", audit.RuleSection, "stranger", func(s *plot) {
			h, _ := entity.NewHolder("stranger", 1)
			_, _ = h.Enter("stranger:0", []entity.ID{"acc@9"})
			s.put(keys.HolderOf(ns, "stranger", 1), entity.AppendHolder(nil, h))
		}},
		{"a section cut short", audit.RuleDamaged, "holder", func(s *plot) {
			key := keys.HolderOf(ns, "holder", v.token.Incarnation)
			s.put(key, s.get(key)[:6])
		}},
	} {
		s := &plot{t: t, state: home.state.Clone(), cfg: home.cfg}
		c.plant(s)
		found := audited(t, s.state, s.cfg)
		if !slices.ContainsFunc(found, func(v audit.Violation) bool { return v.Rule == c.rule && v.ID == c.object }) {
			t.Errorf("%s: want %s of %q, found:\n%s", c.what, c.rule, c.object, strings.TrimSpace(lines(found)))
		}
	}
}

func hexOf(request []byte) string { return hex.EncodeToString(request) }
