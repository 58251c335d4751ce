package main

import (
	"github.com/spf13/cobra"

	"perdure/embed"
)

// settingFlags are the flags of a command that set settings. They keep their text; embed.Load reads it
// together with the other sources, so that all problems come in one answer.
type settingFlags struct {
	values   []*settingValue
	file     string
	defaults map[string]string
}

// addSettings gives cmd --config and a flag for each setting; those of a cluster only when asked.
func addSettings(cmd *cobra.Command, defaults map[string]string, cluster bool) *settingFlags {
	flags := &settingFlags{defaults: defaults}
	set := cmd.Flags()
	set.SortFlags = false
	set.StringVar(&flags.file, "config", "", "YAML `file` of settings, keyed by flag ("+embed.ConfigFileEnv+")")
	for _, s := range embed.Settings() {
		if s.Cluster && !cluster {
			continue
		}
		value := &settingValue{setting: s, text: s.Default}
		if text, ok := defaults[s.Flag]; ok {
			value.text = text
		}
		flags.values = append(flags.values, value)
		flag := set.VarPF(value, s.Flag, "", s.Help)
		if s.Bool {
			flag.NoOptDefVal = "true"
		}
	}
	return flags
}

// sources are the given flags, the environment, the file and the defaults.
func (f *settingFlags) sources(lookup func(string) (string, bool)) embed.Sources {
	from := embed.Sources{Flags: map[string]string{}, LookupEnv: lookup, File: f.file, Defaults: f.defaults}
	for _, v := range f.values {
		if v.given {
			from.Flags[v.setting.Flag] = v.text
		}
	}
	return from
}

// settingValue is a flag's value as text (a pflag.Value).
type settingValue struct {
	setting embed.Setting
	text    string
	given   bool
}

// String is the text: the default until the flag is given.
func (v *settingValue) String() string { return v.text }

// Set takes any text; embed.Load checks it. A flag that is given again continues a list and replaces any other value.
func (v *settingValue) Set(text string) error {
	if v.setting.List && v.given {
		text = v.text + "," + text
	}
	v.text, v.given = text, true
	return nil
}

// Type is what help shows for a value.
func (v *settingValue) Type() string { return v.setting.Unit }
