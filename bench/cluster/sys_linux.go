package cluster

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"syscall"
)

// withCaller makes the kernel end the process when the caller's process ends, and keeps the terminal's Ctrl-C from it.
func withCaller(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// hold binds a TCP port of loopback, and does not listen. It fails if anybody has bound the port. Once it is bound,
// the socket permits others, too, to bind the port if they set SO_REUSEADDR, as listeners do and hold does not.
func hold(port int) (io.Closer, error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	socket := os.NewFile(uintptr(fd), "reserved port")
	err = syscall.Bind(fd, &syscall.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}})
	if err == nil {
		err = syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1)
	}
	if err != nil {
		return nil, errors.Join(err, socket.Close())
	}
	return socket, nil
}
