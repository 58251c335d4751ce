//go:build !linux

package cluster

import (
	"fmt"
	"io"
	"net"
	"os/exec"
)

// withCaller has no means here: a process outlives a caller that is killed.
func withCaller(*exec.Cmd) {}

// hold fails if anybody listens on a TCP port of loopback. It does not keep others from it.
func hold(port int) (io.Closer, error) {
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return nil, err
	}
	return io.NopCloser(nil), l.Close()
}
