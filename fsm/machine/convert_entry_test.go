package machine

import (
	"testing"

	"perdure/fsm/audit"
	"perdure/fsm/wire"
	"perdure/journal"
)

// A journal in the API's form gets the same violations as the stored one.
func TestJournalFromWire(t *testing.T) {
	_, home, name := garden(t)
	c := takeCensus(home.state)
	for _, object := range []string{"done", "failed", "cancelled", "late", "sleeping", "calling", "either", "asking"} {
		var entries []journal.Entry
		for _, e := range c.journals[name(object)] {
			got, err := wire.DecodeEntry(wire.EncodeEntry(e))
			if err != nil {
				t.Fatal(err)
			}
			entries = append(entries, got)
		}
		if found := audit.CheckJournal(name(object), entries); len(found) > 0 {
			t.Errorf("%s:\n%s", object, lines(found))
		}
		if status := journal.StatusOf(entries); status != c.headers[name(object)].Status {
			t.Errorf("%s is %v, must be %v", object, status, c.headers[name(object)].Status)
		}
		broken := append(entries[:1:1], entries...)
		if found := audit.CheckJournal(name(object), broken); !breaks(found, journal.RuleStartedOnce, name(object)) || !found[0].HasSeq {
			t.Errorf("%s, begun twice:\n%s", object, lines(found))
		}
	}
}
