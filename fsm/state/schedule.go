package state

import (
	"bytes"
	"errors"

	"google.golang.org/protobuf/proto"

	perdurev1 "perdure/api/perdure/v1"
)

// EncodeSchedule is a schedule's stored form.
func EncodeSchedule(s *perdurev1.Schedule) ([]byte, error) { return Deterministic.Marshal(s) }

// DecodeSchedule reads a stored schedule.
func DecodeSchedule(b []byte) (*perdurev1.Schedule, error) {
	s := &perdurev1.Schedule{}
	if err := proto.Unmarshal(b, s); err != nil {
		return nil, err
	}
	again, err := EncodeSchedule(s)
	if err == nil && !bytes.Equal(again, b) {
		err = errors.New("it is not in its canonical form")
	}
	return s, err
}
