package embed

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"go.yaml.in/yaml/v3"

	"perdure/internal/near"
)

// Sources are where Load finds settings. A flag wins over the environment, the environment over the file,
// the file over the default.
type Sources struct {
	// Flags holds the text of each flag that was given, by name.
	Flags map[string]string
	// LookupEnv is os.LookupEnv, or a test's. Nil: no environment. A variable that is set but empty
	// counts as not set.
	LookupEnv func(name string) (string, bool)
	// File is a YAML file of settings; empty: none.
	File string
	// ReadFile is os.ReadFile when nil.
	ReadFile func(name string) ([]byte, error)
	// Defaults replaces defaults, by flag name.
	Defaults map[string]string
}

// ConfigFileEnv is the environment variable that names the configuration file when no flag does.
const ConfigFileEnv = "PERDURE_CONFIG"

// given is the text of one setting and where it was found.
type given struct {
	text   string
	source string
}

// Load gathers all settings and checks them. All problems of all sources are in the one
// *ConfigError it returns.
func Load(from Sources) (Config, error) {
	var problems []Problem
	file := from.File
	if file == "" && from.LookupEnv != nil {
		file, _ = from.LookupEnv(ConfigFileEnv)
	}
	inFile := map[string]given{}
	if file != "" {
		inFile, problems = readFile(file, from.ReadFile)
	}

	cfg := DefaultConfig()
	cfg.File = file
	found := map[string]given{}
	unread := map[string]bool{}
	var unreadable []Problem
	for i := range settings {
		s := &settings[i]
		value, ok := from.effective(s, inFile)
		if !ok {
			continue
		}
		found[s.Flag] = value
		if err := parseValue(s.at(&cfg), value.text); err != nil {
			unread[s.Flag] = true
			unreadable = append(unreadable, Problem{Flag: s.Flag, Value: value.text, Source: value.source, Reason: err.Error()})
		} else if s.Flag == "partitions" && cfg.Partitions == 0 {
			// 0 means the default inside a program; in a file or flag it is invalid.
			unread[s.Flag] = true
			unreadable = append(unreadable, Problem{Flag: s.Flag, Value: value.text, Source: value.source,
				Reason: fmt.Sprintf("at least %d; leave it out for the default", minPartitions)})
		}
	}

	invalid := cfg.problems(unread)
	for i := range settings {
		flag := settings[i].Flag
		for _, p := range unreadable {
			if p.Flag == flag {
				problems = append(problems, p)
			}
		}
		for _, p := range invalid {
			if p.Flag == flag {
				p.Source = found[flag].source
				if text, ok := found[flag]; ok {
					p.Value = text.text
				}
				problems = append(problems, p)
			}
		}
	}
	return cfg, problemsError(problems)
}

// effective picks the source of a setting that wins.
func (from Sources) effective(s *Setting, inFile map[string]given) (given, bool) {
	if text, ok := from.Flags[s.Flag]; ok {
		return given{text: text}, true
	}
	if from.LookupEnv != nil {
		if text, ok := from.LookupEnv(s.Env()); ok && text != "" {
			return given{text: text, source: s.Env()}, true
		}
	}
	if value, ok := inFile[s.Key()]; ok {
		return value, true
	}
	if text, ok := from.Defaults[s.Flag]; ok {
		return given{text: text}, true
	}
	return given{}, false
}

// readFile reads the settings of a YAML file: one flat mapping of keys to values. Problems have
// their line.
func readFile(name string, read func(string) ([]byte, error)) (map[string]given, []Problem) {
	if read == nil {
		read = os.ReadFile
	}
	values := map[string]given{}
	content, err := read(name)
	if err != nil {
		return values, []Problem{{Reason: "cannot read the configuration file: " + err.Error()}}
	}
	decoder := yaml.NewDecoder(strings.NewReader(string(content)))
	var document yaml.Node
	if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
		return values, nil // an empty file sets nothing
	} else if err != nil {
		return values, []Problem{{Source: name, Reason: err.Error()}}
	}
	at := func(n *yaml.Node) string { return fmt.Sprintf("%s:%d", name, n.Line) }
	var problems []Problem
	var second yaml.Node
	if err := decoder.Decode(&second); err == nil {
		problems = append(problems, Problem{Source: at(&second), Reason: "a second document; the file is one mapping of keys to values"})
	} else if !errors.Is(err, io.EOF) {
		problems = append(problems, Problem{Source: name, Reason: err.Error()})
	}
	top := document.Content[0]
	if top.Kind == yaml.ScalarNode && top.Tag == "!!null" {
		return values, problems
	}
	if top.Kind != yaml.MappingNode {
		return values, append(problems, Problem{Source: at(top), Reason: "not a mapping of keys to values"})
	}
	lines := map[string]int{}
	for i := 0; i+1 < len(top.Content); i += 2 {
		key, value := top.Content[i], top.Content[i+1]
		if s := settingByFlag(key.Value); s == nil {
			reason := fmt.Sprintf("unknown key %q", key.Value)
			if meant := nearestKey(key.Value); meant != "" {
				reason += fmt.Sprintf("; did you mean %q?", meant)
			}
			problems = append(problems, Problem{Source: at(key), Reason: reason})
			continue
		}
		if first, twice := lines[key.Value]; twice {
			problems = append(problems, Problem{Source: at(key), Reason: fmt.Sprintf("the key %q is in line %d already", key.Value, first)})
			continue
		}
		lines[key.Value] = key.Line
		text, ok := scalarText(value)
		if !ok {
			problems = append(problems, Problem{Source: at(key), Reason: fmt.Sprintf("the key %q needs one value", key.Value)})
			continue
		}
		values[key.Value] = given{text: text, source: at(key)}
	}
	return values, problems
}

// scalarText is a value as text: a scalar as it is written, a list of scalars joined by commas.
func scalarText(n *yaml.Node) (string, bool) {
	switch n.Kind {
	case yaml.AliasNode:
		return scalarText(n.Alias)
	case yaml.ScalarNode:
		return n.Value, n.Tag != "!!null"
	case yaml.SequenceNode:
		parts := make([]string, 0, len(n.Content))
		for _, item := range n.Content {
			if item.Kind != yaml.ScalarNode || item.Tag == "!!null" {
				return "", false
			}
			parts = append(parts, item.Value)
		}
		return strings.Join(parts, ","), true
	default:
		return "", false
	}
}

// nearestKey guesses which key was meant; empty when none is near.
func nearestKey(name string) string {
	flags := make([]string, len(settings))
	for i := range settings {
		flags[i] = settings[i].Flag
	}
	return near.Word(name, flags)
}
