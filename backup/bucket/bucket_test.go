package bucket

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"

	"perdure/backup"
	"perdure/backup/storetest"
	"perdure/internal/freeport"
	"perdure/internal/testkit"
)

// gateway is the S3-compatible server of the test:
//
//	go install github.com/versity/versitygw/cmd/versitygw@v1.8.0
const gateway = "versitygw"

// serve starts a gateway over a folder, with an empty bucket "backups", and returns its environment.
func serve(t *testing.T) func(string) string {
	t.Helper()
	testkit.LacksTool(t, gateway)
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "backups"), 0o755); err != nil {
		t.Fatal(err)
	}
	addr := freeport.Backup.Addr(t)
	cmd := exec.Command(gateway, "--port", addr, "--access", "key", "--secret", "secret", "posix", root)
	out := &strings.Builder{}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it keeps nothing
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(out.String())
		}
	})
	testkit.EventuallyNil(t, 30*time.Second, "the gateway serves", func() error {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			return err
		}
		return conn.Close()
	})
	values := map[string]string{"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1", "AWS_ENDPOINT_URL_S3": "http://" + addr}
	return func(name string) string { return values[name] }
}

func TestBucket(t *testing.T) {
	env := serve(t)
	for _, location := range []string{"s3://backups", "s3://backups/some/prefix/"} {
		b, err := Open(location, env)
		if err != nil {
			t.Fatal(err)
		}
		storetest.Run(t, b)
	}
	none, err := Open("s3://nobucket/x", env)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := backup.Names(t.Context(), none); minio.ToErrorResponse(err).Code != minio.NoSuchBucket {
		t.Fatalf("listing no bucket: %v", err)
	}
	if _, err := none.Get(t.Context(), "files/a"); minio.ToErrorResponse(err).Code == minio.NoSuchKey || err == nil {
		t.Fatalf("reading from no bucket: %v", err)
	}
}

func TestLocations(t *testing.T) {
	for _, bad := range []string{"", "s3://", "s3:bucket", "file:///x", "https://s3/x", "s3://key:secret@bucket", "s3://bucket?x"} {
		if _, err := Open(bad, func(string) string { return "" }); err == nil {
			t.Errorf("%q was opened", bad)
		}
	}
	for _, bad := range []string{"host:9000", "ftp://host", "http://host/path"} {
		if _, err := Open("s3://bucket", func(name string) string { return map[string]string{"AWS_ENDPOINT_URL": bad}[name] }); err == nil {
			t.Errorf("endpoint %q was accepted", bad)
		}
	}
}
