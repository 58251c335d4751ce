package testkit_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"perdure/internal/testkit"
)

// TestLacks: what a machine lacks skips the test that needs it, and is noted in the file that the run names.
func TestLacks(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lacks")
	t.Setenv("PERDURE_TEST_LACKS", file)
	ran := 0
	for _, name := range []string{"one", "two"} {
		var inner *testing.T
		t.Run(name, func(t *testing.T) {
			inner = t
			testkit.Lacks(t, "a moon", errors.New("the sky is empty"))
			ran++
		})
		if !inner.Skipped() {
			t.Errorf("%s was not skipped", name)
		}
	}
	t.Run("tool", func(t *testing.T) {
		testkit.LacksTool(t)
		testkit.LacksTool(t, "a-tool-that-nobody-has")
		ran++
	})
	noted, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(noted)), "\n")
	if len(lines) != 3 || ran != 0 || lines[1] != "TestLacks/two: this machine lacks a moon: the sky is empty" || !strings.Contains(lines[2], "the command a-tool-that-nobody-has") {
		t.Errorf("%d tests ran on, noted:\n%s", ran, noted)
	}
}
