package partition

import (
	"bytes"
	"fmt"
	"os"
	"strings"

	"perdure/partition/identity"
)

// damageCases is the table: a name for people, what is done, and what must come of it.
func damageCases() []damageCase {
	var all []damageCase
	opened := ""
	add := func(want, name string, do func(h *hurt)) {
		all = append(all, damageCase{name: name, do: do, want: want, opened: opened})
	}

	add(serves, "nothing at all", func(h *hurt) {})

	add(refused, "IDENTITY is missing", func(h *hurt) { h.remove(identity.FileName) })
	add(refused, "IDENTITY is empty", func(h *hurt) { h.cut(identity.FileName, 0) })
	add(refused, "IDENTITY is cut in half", func(h *hurt) { h.cut(identity.FileName, h.size(identity.FileName)/2) })
	add(refused, "IDENTITY, a digit differs", func(h *hurt) {
		b, err := os.ReadFile(h.path(identity.FileName))
		h.check(err)
		at := bytes.Index(b, []byte(`"cluster_id": "`)) + 20
		b[at] = map[bool]byte{true: '1', false: '0'}[b[at] == '0']
		h.touched[identity.FileName] = true
		h.check(os.WriteFile(h.path(identity.FileName), b, 0o644))
	})
	add(refused, "IDENTITY is another node's", func(h *hurt) { h.foreign(identity.FileName) })
	add(refused, "the configuration names another number of partitions", func(h *hurt) { h.cfg.Partitions = 3 })
	add(refused, "the configuration names another node", func(h *hurt) { h.cfg.NodeID = "n2" })

	state := "state-0001"
	add(refused, "a state is missing", func(h *hurt) { h.remove(state) })
	add(refused, "a state is empty", func(h *hurt) { h.remove(state); h.check(os.Mkdir(h.path(state), 0o755)) })
	add(refused, "a state is another node's", func(h *hurt) { h.foreign(state) })
	add(refused, "two states are exchanged", func(h *hurt) { h.swap("state-0000", state) })
	add(refused, "a state's MANIFEST is missing", func(h *hurt) { h.remove(h.one(state + "/MANIFEST-*")) })
	add(refused, "a state's MANIFEST is empty", func(h *hurt) { h.cut(h.one(state+"/MANIFEST-*"), 0) })
	add(refused, "a state's MANIFEST, a byte of the first record", func(h *hurt) { h.flip(h.one(state+"/MANIFEST-*"), 20) })
	add(refused, "a state's MANIFEST, a byte in the middle", func(h *hurt) {
		m := h.one(state + "/MANIFEST-*")
		h.flip(m, h.size(m)/2)
	})
	add(either, "a state's MANIFEST, a byte of the last record, which may be a write that was cut short", func(h *hurt) {
		h.flip(h.one(state+"/MANIFEST-*"), -10)
	})
	add(serves, "a state's OPTIONS, a byte of a comment", func(h *hurt) { h.flip(h.one(state+"/OPTIONS-*"), 30) })
	add(serves, "a state's OPTIONS is missing", func(h *hurt) { h.remove(h.one(state + "/OPTIONS-*")) })
	add(serves, "a state's OPTIONS is cut", func(h *hurt) { h.cut(h.one(state+"/OPTIONS-*"), 100) })
	add(refused, "a state's pointer to its MANIFEST is missing", func(h *hurt) { h.remove(h.one(state + "/marker.manifest.*")) })
	add(refused, "a state's format version is missing", func(h *hurt) { h.remove(h.one(state + "/marker.format-version.*")) })
	add(refused, "a state's table is missing", func(h *hurt) { h.remove(h.one(state + "/*.sst")) })
	add(refused, "a state's table is cut", func(h *hurt) {
		s := h.one(state + "/*.sst")
		h.cut(s, h.size(s)-1)
	})
	add(refused, "a state's tables, a byte of each footer", func(h *hurt) {
		for _, s := range h.all(state + "/*.sst") {
			h.flip(s, -20)
		}
	})
	add(refused, "a state's tables, a byte of each first block", func(h *hurt) {
		for _, s := range h.all(state + "/*.sst") {
			h.flip(s, 10)
		}
	})
	add(halts, "a state's table, a byte of a block that is seldom read", func(h *hurt) {
		if !h.find(state+"/*.sst", h.w.inputs[h.w.victim][5000:5064]) {
			h.t.Fatal("the victim's input is in no table")
		}
	})

	markers := "markers-0001"
	add(refused, "markers are missing", func(h *hurt) { h.remove(markers) })
	add(refused, "markers are another node's", func(h *hurt) { h.foreign(markers) })
	add(refused, "two partitions' markers are exchanged", func(h *hurt) { h.swap("markers-0000", markers) })
	add(refused, "a marker, one byte", func(h *hurt) { h.flip(h.one(markers+"/*.marker"), 30) })
	add(refused, "a marker is cut", func(h *hurt) { h.cut(h.one(markers+"/*.marker"), 40) })
	add(refused, "the stamp of the markers is missing", func(h *hurt) { h.remove(markers + "/" + identity.StampFile) })
	add(refused, "the stamp of the markers, one byte", func(h *hurt) { h.flip(markers+"/"+identity.StampFile, -1) })
	opened = logs
	add(refused, "all markers are gone, the directory is there", func(h *hurt) {
		for _, m := range h.all(markers + "/*.marker") {
			h.remove(m)
		}
	})

	log := identity.RaftLogDir
	opened = terms
	add(refused, "the log is missing", func(h *hurt) { h.remove(log) })
	add(refused, "the log's seal is missing", func(h *hurt) { h.remove(log + "/seal") })
	add(refused, "the log's seal, one byte", func(h *hurt) { h.flip(log+"/seal", 20) })
	add(refused, "the log's files are missing", func(h *hurt) { h.remove(log + "/db") })
	add(refused, "the log's MANIFEST is missing", func(h *hurt) { h.remove(h.one(log + "/db/MANIFEST-*")) })
	for _, at := range []int{20, 50, 90} {
		add(refused, fmt.Sprintf("the log's MANIFEST, a byte at %d %%", at), func(h *hurt) {
			m := h.one(log + "/db/MANIFEST-*")
			h.flip(m, h.size(m)*at/100)
		})
	}
	add(refused, "the log's write-ahead log is missing", func(h *hurt) { h.remove(h.one(log + "/db/*.log")) })

	opened = logs
	add(refused, "the log is another node's", func(h *hurt) { h.foreign(log) })
	for _, last := range []bool{false, true} {
		which := "first"
		if last {
			which = "last"
		}
		add(refused, "the log's write-ahead log, a byte of its "+which+" entry", func(h *hurt) { h.flip(h.entry(h.one(log+"/db/*.log"), last)) })
		add(refused, "the log's write-ahead log is cut in its "+which+" entry", func(h *hurt) { h.cut(h.entry(h.one(log+"/db/*.log"), last)) })
	}
	add(refused, "a table of the log is missing", func(h *hurt) { h.remove(h.one(log + "/db/*.sst")) })
	add(refused, "tables of the log, a byte of each footer", func(h *hurt) {
		for _, s := range h.all(log + "/db/*.sst") {
			h.flip(s, -20)
		}
	})
	add(refused, "a table of the log, a byte of an entry", func(h *hurt) {
		h.flip(h.entry(h.holding(log+"/db/*.sst", 0), false))
	})

	opened = ""
	add(refused, "terms and votes are missing", func(h *hurt) { h.remove(identity.StableFile) })
	add(refused, "terms and votes are empty", func(h *hurt) { h.cut(identity.StableFile, 0) })
	add(refused, "terms and votes are cut", func(h *hurt) { h.cut(identity.StableFile, h.size(identity.StableFile)/2) })
	for _, part := range []string{"first meta page, one byte", "second meta page, one byte"} {
		add(refused, "terms and votes, "+part, func(h *hurt) {
			page := os.Getpagesize()
			if strings.HasPrefix(part, "first") {
				page = 0
			}
			h.flip(identity.StableFile, page+40)
		})
	}
	opened = terms
	add(refused, "terms and votes are another node's", func(h *hurt) { h.foreign(identity.StableFile) })
	add(refused, "terms and votes, a byte of the record", func(h *hurt) {
		b, err := os.ReadFile(h.path(identity.StableFile))
		h.check(err)
		at := bytes.LastIndex(b, []byte("CurrentTerm"))
		if at < 0 {
			h.t.Fatal("no record is in the file")
		}
		for at := 0; ; at++ {
			n := bytes.Index(b[at:], []byte("CurrentTerm"))
			if n < 0 {
				break
			}
			at += n
			h.flip(identity.StableFile, at+2)
		}
	})
	return all
}
