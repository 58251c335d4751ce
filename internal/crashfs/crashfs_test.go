package crashfs

import (
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// TestNoHang: while it is cloned all the time, directories are still locked and files reused.
func TestNoHang(t *testing.T) {
	fs := New()
	over := make(chan struct{})
	var cloners, users sync.WaitGroup
	for range 2 {
		cloners.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
					fs.CrashClone(vfs.CrashCloneCfg{})
				}
			}
		})
	}
	for _, name := range []string{"a", "b"} {
		users.Go(func() {
			for range 2000 {
				lock, err := fs.Lock(name)
				if err != nil {
					t.Error(err)
					return
				}
				if err := lock.Close(); err != nil {
					t.Error(err)
				}
				file, err := fs.ReuseForWrite(name, name+"2", vfs.WriteCategoryUnspecified)
				if err != nil {
					t.Error(err)
					return
				}
				if err := file.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { users.Wait(); close(over); cloners.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("it hangs")
	}
}
