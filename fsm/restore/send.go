package restore

import (
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
)

// messageBytes bounds the rows of one message: a log's entry of this size does not wait for others of the node.
const messageBytes = 48 << 10

// Send calls send for every message of an import of the plan (perdurev1.Restores) under a name that is not 0, in their
// order. It ends with the first error. It holds one message for each partition.
func (p *Plan) Send(name uint64, send func(*perdurev1.ImportRequest) error) error {
	if err := send(&perdurev1.ImportRequest{Restore: name, Partitions: p.count}); err != nil {
		return err
	}
	open := make([][]*perdurev1.ImportedRow, p.count)
	sizes := make([]int, p.count)
	flush := func(partition uint32) error {
		rows := open[partition]
		if len(rows) == 0 {
			return nil
		}
		err := send(&perdurev1.ImportRequest{Restore: name, Partitions: p.count, Partition: partition, Rows: rows})
		open[partition], sizes[partition] = nil, 0
		return err
	}
	if err := p.Rows(func(partition uint32, row state.Write) error {
		size := len(row.Key) + len(row.Value)
		if sizes[partition]+size > messageBytes {
			if err := flush(partition); err != nil {
				return err
			}
		}
		sizes[partition] += size
		open[partition] = append(open[partition], &perdurev1.ImportedRow{Key: row.Key, Value: row.Value})
		return nil
	}); err != nil {
		return err
	}
	for partition := range p.count {
		if err := flush(partition); err != nil {
			return err
		}
	}
	for partition := range p.count {
		end := p.Done(partition, name)
		if err := send(&perdurev1.ImportRequest{Restore: name, Partitions: p.count, Partition: partition, Done: &perdurev1.ImportEnd{
			Base: end.Base, ClockMs: end.ClockMs, Level: end.Level, Evicted: end.Evicted}}); err != nil {
			return err
		}
	}
	return nil
}
