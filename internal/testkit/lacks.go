package testkit

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
)

// lacksEnv names a file to which Lacks appends a line for each test that it skips: go test shows why a test was skipped
// only with -v, so a run that must see everything tested reads the file afterwards.
const lacksEnv = "PERDURE_TEST_LACKS"

// Lacks skips a test because this machine has no such thing, what, which the test needs; why says how that was found.
func Lacks(t testing.TB, what string, why error) {
	t.Helper()
	line := fmt.Sprintf("%s: this machine lacks %s: %v", t.Name(), what, why)
	if err := noteLack(os.Getenv(lacksEnv), line); err != nil {
		t.Errorf("%s; and that cannot be noted: %v", line, err)
	}
	t.Skip(line)
}

// LacksTool skips a test if the machine has none of these commands.
func LacksTool(t testing.TB, tools ...string) {
	t.Helper()
	for _, tool := range tools {
		if _, err := exec.LookPath(tool); err != nil {
			Lacks(t, "the command "+tool, err)
		}
	}
}

// noteLack appends a line to a file, if it is named.
func noteLack(name, line string) error {
	if name == "" {
		return nil
	}
	f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString(line + "\n")
	if closed := f.Close(); err == nil {
		err = closed
	}
	return err
}
