package embed

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

// The files in deploy/ name settings by hand. These tests hold them against the table.

func deployed(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../deploy/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// flagsIn are the flags that a text gives to "start", from what is behind that word on: names and values.
func flagsIn(t *testing.T, words []string) map[string]string {
	t.Helper()
	at := slices.Index(words, "start")
	if at < 0 {
		t.Fatalf("no start in %q", words)
	}
	flags := map[string]string{}
	for words = words[at+1:]; len(words) > 0; words = words[1:] {
		name, value, joined := strings.Cut(strings.TrimPrefix(words[0], "--"), "=")
		s := settingByFlag(name)
		if s == nil || !strings.HasPrefix(words[0], "--") {
			t.Errorf("%q is not a flag of start", words[0])
			continue
		}
		_, isBool := s.at(&Config{}).(*bool)
		switch {
		case isBool && !joined:
			value = "true"
		case !joined && len(words) > 1:
			words = words[1:]
			value = words[0]
		}
		flags[name] = value
	}
	return flags
}

// Every key of the sample is a setting, in the sample once; what it sets is valid, what is commented out is the
// default where there is one.
func TestDeployedConfig(t *testing.T) {
	text := deployed(t, "perdure.yaml")
	line := regexp.MustCompile(`^(# )?([a-z][a-z-]*): (.*)$`)
	seen := map[string]bool{}
	for _, l := range strings.Split(text, "\n") {
		m := line.FindStringSubmatch(l)
		if m == nil {
			continue
		}
		s := settingByFlag(m[2])
		if s == nil {
			t.Errorf("%q: there is no such setting", m[2])
			continue
		}
		if seen[m[2]] {
			t.Errorf("%q is there twice", m[2])
		}
		seen[m[2]] = true
		defaults := DefaultConfig()
		if want := formatValue(s.at(&defaults)); m[1] != "" && !isZero(s.at(&defaults)) && m[3] != want {
			t.Errorf("%s is shown with %s, its default is %s", m[2], m[3], want)
		}
	}
	for _, s := range Settings() {
		if !seen[s.Flag] {
			t.Errorf("%s is a setting, and not in the sample", s.Flag)
		}
	}

	// The files it names are not on this machine: the rest must be valid.
	without := regexp.MustCompile(`(?m)^(tls|tokens|peer-tls|gossip-key|jwt)[a-z-]*:.*$`).ReplaceAllString(text, "")
	all := strings.Split(without, "\n")
	for i := range all {
		all[i] = uncomment(all[i])
	}
	for what, text := range map[string]string{"as it is": without, "uncommented": strings.Join(all, "\n")} {
		text += "\ninsecure: true\n"
		_, err := Load(Sources{File: "perdure.yaml", ReadFile: func(string) ([]byte, error) { return []byte(text), nil }})
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// uncomment takes the mark from a commented setting, except those of security, which need files.
func uncomment(l string) string {
	key, _, _ := strings.Cut(strings.TrimPrefix(l, "# "), ":")
	if settingByFlag(key) == nil || key == "insecure" || strings.HasPrefix(key, "tls-") || strings.HasPrefix(key, "jwt-") {
		return l
	}
	return strings.TrimPrefix(l, "# ")
}

// The unit names only settings that exist, and waits longer than a node may take to stop.
func TestDeployedUnit(t *testing.T) {
	text := deployed(t, "perdure-node.service")
	start := regexp.MustCompile(`(?m)^ExecStart=(.*)$`).FindStringSubmatch(text)
	if start == nil {
		t.Fatal("no ExecStart")
	}
	if _, err := Load(Sources{Flags: flagsIn(t, strings.Fields(start[1]))}); err != nil {
		t.Error(err)
	}
	for _, name := range regexp.MustCompile(`PERDURE_[A-Z][A-Z_]*[A-Z]`).FindAllString(text, -1) {
		known := name == ConfigFileEnv || slices.ContainsFunc(Settings(), func(s Setting) bool { return s.Env() == name })
		if !known {
			t.Errorf("%s is no variable of a setting", name)
		}
	}
	stop := regexp.MustCompile(`(?m)^TimeoutStopSec=(\d+)$`).FindStringSubmatch(text)
	if stop == nil {
		t.Fatal("no TimeoutStopSec in seconds")
	}
	if d, err := time.ParseDuration(stop[1] + "s"); err != nil || d <= DefaultConfig().ShutdownGrace {
		t.Errorf("TimeoutStopSec is %v, %v; shutdown-grace is %v", d, err, DefaultConfig().ShutdownGrace)
	}
	if !strings.Contains(text, "\nKillSignal=SIGTERM\n") {
		t.Error("SIGTERM is what stops a node in order")
	}
}

// The services of the compose file differ in their name only, and each one's command line is valid.
func TestDeployedCompose(t *testing.T) {
	var file struct {
		Services map[string]struct {
			Command []string       `yaml:"command"`
			Volumes []string       `yaml:"volumes"`
			Grace   string         `yaml:"stop_grace_period"`
			Rest    map[string]any `yaml:",inline"`
		} `yaml:"services"`
		Rest map[string]any `yaml:",inline"`
	}
	text := deployed(t, "compose.yaml")
	if err := yaml.Unmarshal([]byte(text), &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Services) != 3 {
		t.Fatalf("%d services", len(file.Services))
	}
	var first string
	for name, s := range file.Services {
		flags := flagsIn(t, s.Command)
		if _, err := Load(Sources{Flags: flags}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if flags["node-id"] != name || flags["advertise-host"] != name || flags["bootstrap-expect"] != "3" || !strings.Contains(flags["join"], name+":7403") {
			t.Errorf("%s has %v", name, flags)
		}
		if len(s.Volumes) != 1 || s.Volumes[0] != name+":"+flags["data"] {
			t.Errorf("%s keeps its data at %s, in the volumes %v", name, flags["data"], s.Volumes)
		}
		if d, err := time.ParseDuration(s.Grace); err != nil || d <= DefaultConfig().ShutdownGrace {
			t.Errorf("%s has %v to stop, %v", name, d, err)
		}
		same := strings.NewReplacer("node-id="+name, "", "advertise-host="+name, "").Replace(strings.Join(s.Command, " "))
		if first == "" {
			first = same
		}
		if same != first {
			t.Errorf("the command lines differ:\n%s\n%s", first, same)
		}
	}
	for _, flag := range regexp.MustCompile(`--([a-z]+-[a-z-]+)=`).FindAllStringSubmatch(text, -1) {
		if settingByFlag(flag[1]) == nil {
			t.Errorf("--%s is named, and there is no such setting", flag[1])
		}
	}
}

// The image's command line, and that of the script for three nodes.
func TestDeployedCommands(t *testing.T) {
	cmd := regexp.MustCompile(`(?m)^CMD \[(.*)\]$`).FindStringSubmatch(deployed(t, "Containerfile"))
	if cmd == nil {
		t.Fatal("no CMD")
	}
	words := strings.Split(strings.ReplaceAll(cmd[1], `"`, ""), ", ")
	if _, err := Load(Sources{Flags: flagsIn(t, words)}); err != nil {
		t.Error(err)
	}
	script := deployed(t, "three-nodes.sh")
	_, line, _ := strings.Cut(script, " start --node-id")
	line, _, _ = strings.Cut("--node-id"+line, "${extra")
	flags := regexp.MustCompile(`--([a-z-]+) `).FindAllStringSubmatch(line, -1)
	if len(flags) < 8 {
		t.Errorf("only %d flags in %q", len(flags), line)
	}
	for _, f := range flags {
		if settingByFlag(f[1]) == nil {
			t.Errorf("three-nodes.sh: --%s is not a setting", f[1])
		}
	}
}
