package repair

import (
	"testing"

	commandv1 "perdure/api/command/v1"
)

// TestCheck: a replica that differs from two others that agree is in the minority. It is not when the others
// have no mark there, or differ as well.
func TestCheck(t *testing.T) {
	replica := func(applied, sum uint64, marks ...uint64) *commandv1.ReplicaStatus {
		r := &commandv1.ReplicaStatus{Applied: applied, Checksum: sum}
		for i := 0; i+1 < len(marks); i += 2 {
			r.Marks = append(r.Marks, &commandv1.ChecksumMark{Index: marks[i], Checksum: marks[i+1]})
		}
		return r
	}
	said := func(rs ...*commandv1.ReplicaStatus) (out []*commandv1.NodeStatus) {
		for _, r := range rs {
			if r == nil {
				out = append(out, nil)
				continue
			}
			out = append(out, &commandv1.NodeStatus{Replicas: []*commandv1.ReplicaStatus{r}})
		}
		return out
	}
	halted := replica(500, 7)
	halted.Halted = "damaged"
	for name, c := range map[string]struct {
		own      *commandv1.ReplicaStatus
		others   []*commandv1.NodeStatus
		differs  bool
		minority bool
	}{
		"equal":                   {replica(500, 5, 256, 1), said(replica(500, 5, 256, 1), replica(300, 9, 256, 1)), false, false},
		"nothing in common":       {replica(500, 5), said(replica(300, 9), replica(400, 8)), false, false},
		"others agree":            {replica(500, 5, 256, 2), said(replica(501, 6, 256, 1), replica(300, 9, 256, 1)), true, true},
		"an old mark":             {replica(900, 5, 256, 2, 512, 3), said(replica(300, 9, 256, 1), replica(301, 8, 256, 1)), true, true},
		"all differ":              {replica(500, 5), said(replica(500, 6), replica(500, 7)), true, false},
		"one of two":              {replica(500, 5), said(replica(500, 6), nil), true, false},
		"the other is the odd":    {replica(500, 5), said(replica(500, 5), replica(500, 7)), true, false},
		"the halted do not count": {replica(500, 5), said(replica(500, 5), halted), false, false},
		"most of four":            {replica(500, 1), said(replica(500, 2), replica(500, 2), replica(500, 2), replica(500, 3)), true, true},
	} {
		d := check(c.own, c.others, len(c.others)+1)
		if (d != nil) != c.differs || d != nil && d.minority != c.minority {
			t.Errorf("%s: %+v", name, d)
		}
	}
}
