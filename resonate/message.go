package resonate

import (
	"bytes"
	"encoding/json"
	"fmt"

	commandv1 "perdure/api/command/v1"
)

// MessageEncoder returns what makes the JSON of a message for an address, one line: execute for a pending task, unblock for
// a settled promise. dotted is [Options.DottedIDs].
func MessageEncoder(dotted bool) func(m *commandv1.AddressMessage) ([]byte, error) {
	return ids{dotted: dotted}.encodeMessage
}

func (c ids) encodeMessage(m *commandv1.AddressMessage) ([]byte, error) {
	var kind string
	var data any
	switch k := m.Kind.(type) {
	case *commandv1.AddressMessage_Execute:
		type task struct {
			ID      string `json:"id"`
			Version uint64 `json:"version"`
		}
		kind, data = "execute", struct {
			Task task `json:"task"`
		}{task{c.outward(k.Execute.Id), k.Execute.Version}}
	case *commandv1.AddressMessage_Unblock:
		kind, data = "unblock", promiseData{c.promiseRecord(k.Unblock)}
	default:
		return nil, fmt.Errorf("message of type %T for address %q", m.Kind, m.Address)
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(struct {
		Kind string         `json:"kind"`
		Head map[string]any `json:"head"`
		Data any            `json:"data"`
	}{kind, map[string]any{}, data}); err != nil {
		return nil, err
	}
	return bytes.TrimRight(out.Bytes(), "\n"), nil
}
