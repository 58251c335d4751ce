package main

import (
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

func TestHelp(t *testing.T) {
	sh := &shell{addr: "127.0.0.1:1"}
	sh.story(t, "help",
		"--help", "start --help", "result --help", "describe --help", "journal --help", "journal check --help", "list --help",
		"signal --help", "cancel --help", "terminate --help", "export --help", "import --help", "retry --help", "restart --help", "promise --help", "promise create --help", "promise get --help",
		"promise resolve --help", "promise reject --help", "promise cancel --help", "verify --help", "token --help", "token hash --help", "version --help",
	)
}

// The commands of the recovery protocol.
func TestHelpTask(t *testing.T) {
	sh := &shell{addr: "127.0.0.1:1"}
	sh.story(t, "help_task", "task --help", "task create --help", "task get --help", "task acquire --help", "task heartbeat --help", "task release --help",
		"task suspend --help", "task fulfill --help", "task halt --help", "task continue --help", "task search --help", "promise search --help")
}

// Every command that can be run has help in one line and an example that names it.
func TestEveryCommandHasAnExample(t *testing.T) {
	root := testApp(io.Discard).rootCommand()
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		if cmd.Short == "" {
			t.Errorf("%s: no help", cmd.CommandPath())
		}
		if !strings.Contains(cmd.Example, cmd.CommandPath()) {
			t.Errorf("%s: no example that uses it: %q", cmd.CommandPath(), cmd.Example)
		}
		for _, sub := range cmd.Commands() {
			if sub.Name() != "help" {
				walk(sub)
			}
		}
	}
	walk(root)
}

func TestUsage(t *testing.T) {
	sh := &shell{addr: "127.0.0.1:1"}
	sh.story(t, "usage", "", "strat", "frobnicate", "describe order-42 order-43", "list --colour", "--json strat", "version now")
}

func TestVersion(t *testing.T) {
	sh := &shell{addr: "127.0.0.1:1"}
	if stdout, _, code := sh.run("version"); code != exitDone || !regexp.MustCompile(`^perdure \S+ go1\S+ \w+/\w+\n$`).MatchString(stdout) {
		t.Errorf("exit %d, %q", code, stdout)
	}
	if stdout, _, code := sh.run("version", "--json"); code != exitDone ||
		!regexp.MustCompile(`^\{"version":"[^"]+","go":"go1[^"]+","os":"\w+","arch":"\w+"\}\n$`).MatchString(stdout) {
		t.Errorf("exit %d, %q", code, stdout)
	}
}

func TestCompletion(t *testing.T) {
	sh := &shell{addr: "127.0.0.1:1"}
	for _, shellName := range []string{"bash", "zsh", "fish", "powershell"} {
		if stdout, stderr, code := sh.run("completion", shellName); code != exitDone || !strings.Contains(stdout, "perdure") {
			t.Errorf("%s: exit %d: %s", shellName, code, stderr)
		}
	}
	if stdout, _, _ := sh.run("__complete", "list", "--status", ""); !strings.HasPrefix(stdout, "running\nblocked\ncancelling\ncompleted\nfailed\ncancelled\n") {
		t.Errorf("completion of --status: %q", stdout)
	}
}

func TestSpan(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0ms", 350 * time.Millisecond: "350ms", 1500 * time.Millisecond: "1s", 59 * time.Second: "59s", 60 * time.Second: "1m",
		61 * time.Second: "1m1s", time.Hour: "1h", 90 * time.Minute: "1h30m", 24 * time.Hour: "1d", 50 * time.Hour: "2d2h", 24*time.Hour + time.Minute: "1d",
	} {
		if got := span(d); got != want {
			t.Errorf("span(%v) = %q, want %q", d, got, want)
		}
	}
	a := testApp(io.Discard)
	for ms, want := range map[int64]string{0: "-", at(0): "now", at(500 * time.Millisecond): "now", at(-500 * time.Millisecond): "in under a second", at(time.Hour): "1h ago", at(-time.Hour): "in 1h"} {
		if got := a.since(ms); got != want {
			t.Errorf("since(%d) = %q, want %q", ms, got, want)
		}
	}
}

// Values that others stored cannot control the reader's terminal, nor break a table or a pasted command.
func TestPrintable(t *testing.T) {
	for text, want := range map[string]string{
		"order-42": "order-42", "Zoë ☕": "Zoë ☕", "a\tb": `"a\tb"`, "\x1b[2J": `"\x1b[2J"`, "a\xff": `"a\xff"`, "a\u202eb": `"a\u202eb"`,
	} {
		if got := printable(text); got != want {
			t.Errorf("printable(%q) = %s, want %s", text, got, want)
		}
	}
	if got := sentences("panic: \x1b[31mred\n\tat main.go\x00\xff"); got != `panic: \x1b[31mred`+"\n\tat main.go"+`\x00`+"\uFFFD" {
		t.Errorf("sentences: %q", got)
	}
	for text, want := range map[string]string{"order-42": "order-42", "": "''", "a b": "'a b'", "it's": `'it'\''s'`, "$(rm)": "'$(rm)'"} {
		if got := shellWord(text); got != want {
			t.Errorf("shellWord(%q) = %s, want %s", text, got, want)
		}
	}
	if got := preview([]byte("\xff\xfe")); got != "(2 bytes, not text)" {
		t.Errorf("preview of bytes: %s", got)
	}
	if got := preview([]byte(strings.Repeat("é", 500))); got != strings.Repeat("é", previewRunes)+"… (1000 bytes)" {
		t.Errorf("preview of a long text: %s", got)
	}
}
