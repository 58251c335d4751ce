package repair

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"perdure/partition/disk"
)

const reserve = 1 << 20

// TestContentCopy: content is written as long as the low mark stays free in addition to it and to the state
// that is made of it. A chunk that does not fit is refused whole.
func TestContentCopy(t *testing.T) {
	const chunk, spare = 100, 1000
	for _, c := range []struct {
		installed bool
		want      int64
	}{{false, 1000}, {true, 500}} {
		var out bytes.Buffer
		guard := disk.New(disk.Options{FS: vfs.NewMem(), Reserve: reserve, Usage: func() (int64, int64, error) {
			return 2*reserve + spare - int64(out.Len()), 100 * reserve, nil
		}})
		to := contentCopy{to: &out, disk: guard, installed: c.installed}
		n, err := io.CopyBuffer(struct{ io.Writer }{&to}, struct{ io.Reader }{bytes.NewReader(make([]byte, 5000))}, make([]byte, chunk))
		var full *disk.FullError
		if !errors.As(err, &full) || full.Mark != 2*reserve || n != c.want || int64(out.Len()) != c.want || to.written != c.want {
			t.Errorf("installed %v: %d bytes were taken, %d are written: %v", c.installed, n, out.Len(), err)
		}
	}
}
