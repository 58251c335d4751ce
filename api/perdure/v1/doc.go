// Package perdurev1 is the public API on the wire: executions, promises and the workers' tasks, generated
// from the .proto files next to it. It owns the messages and the services' stubs, and promises that they
// stay compatible: fields are added, never renumbered or reused, and every enum's zero means
// "unspecified". It holds values only; a crash loses nothing.
package perdurev1
