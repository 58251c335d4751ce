package resonate

import (
	"reflect"
	"testing"
)

// A value comes back as the client gave it, whether or not its data is base64.
func TestValues(t *testing.T) {
	values := []Value{{}, {Headers: map[string]string{"a": "b"}}}
	for _, data := range []string{"", "e30=", "e30", "e31=", "e30=\n", "e3\r\n0=", "=", "ünicode", "null", "AA==", "AB=="} {
		values = append(values, Value{Data: &data}, Value{Data: &data, Headers: map[string]string{"": ""}})
	}
	for _, v := range values {
		stored := v.stored()
		if got := valueOf(stored.Data, stored.Form, stored.Headers); !reflect.DeepEqual(got, v) {
			t.Errorf("%v is stored as %v", v, stored)
		}
	}
}
