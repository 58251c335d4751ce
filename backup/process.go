package backup

import (
	"errors"
	"os"
	"syscall"
)

// process names the process of a create, so that another one on the same machine sees that it was killed.
type process struct {
	// Host is the machine and its namespace of process ids; "" if it is not known.
	Host string `json:"host,omitempty"`
	PID  int    `json:"pid,omitempty"`
}

// thisProcess is the process that runs.
func thisProcess() process {
	host, err := os.Hostname()
	if err != nil {
		return process{}
	}
	// Containers of one machine may have one host name. Where there are no such namespaces, there is no file.
	space, _ := os.Readlink("/proc/self/ns/pid")
	return process{Host: host + " " + space, PID: os.Getpid()}
}

// gone reports whether the process surely has ended. It is false for one of another machine. Two machines of one name may
// make it wrong: then a create that runs loses its partial, notices that, and fails.
func (p process) gone() bool {
	here := thisProcess()
	if p.PID <= 0 || p.Host == "" || p.Host != here.Host {
		return false
	}
	found, err := os.FindProcess(p.PID)
	if err != nil {
		return false
	}
	return errors.Is(found.Signal(syscall.Signal(0)), os.ErrProcessDone)
}
