package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"perdure/id"
)

// payloadFlag is a flag that gives a payload: the text itself, @FILE, or - for standard input.
type payloadFlag struct {
	name string
	text string
	raw  *bool
	cmd  *cobra.Command
}

// addPayload gives cmd a payload flag, and --raw.
func addPayload(cmd *cobra.Command, name, what string) *payloadFlag {
	p := &payloadFlag{name: name, cmd: cmd, raw: new(bool)}
	cmd.Flags().StringVar(&p.text, name, "", what+": `JSON`, @FILE, or - for stdin")
	cmd.Flags().BoolVar(p.raw, "raw", false, "send --"+name+" as it is, JSON or not")
	return p
}

// another gives the command a second payload flag, for which --raw counts, too.
func (p *payloadFlag) another(name, what string) *payloadFlag {
	q := &payloadFlag{name: name, cmd: p.cmd, raw: p.raw}
	p.cmd.Flags().StringVar(&q.text, name, "", what+": `JSON`, @FILE, or - for stdin")
	return q
}

// given reports whether the flag was given.
func (p *payloadFlag) given() bool { return p.cmd.Flags().Changed(p.name) }

// read returns the payload; nil when the flag was not given. Without --raw it refuses a payload that is not
// JSON: a function written with the SDK's defaults could not read it.
func (p *payloadFlag) read(stdin io.Reader) ([]byte, error) {
	if !p.given() {
		return nil, nil
	}
	var payload []byte
	var err error
	switch path, isFile := strings.CutPrefix(p.text, "@"); {
	case p.text == "-":
		payload, err = readBounded(stdin)
	case isFile:
		payload, err = readFile(path)
	default:
		payload = []byte(p.text)
	}
	if err != nil {
		return nil, usagef("--%s %s: %v", p.name, p.text, err)
	}
	if len(payload) > id.MaxPayloadBytes {
		return nil, usagef("--%s: more than %d bytes, the most a payload may have", p.name, id.MaxPayloadBytes)
	}
	if !*p.raw && !json.Valid(payload) {
		return nil, usagef("--%s is not JSON (a text needs its quotes: '\"like this\"'); --raw sends it as it is", p.name)
	}
	return payload, nil
}

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readBounded(f)
}

// readBounded reads one byte more than is allowed, so that a larger input shows without being read.
func readBounded(r io.Reader) ([]byte, error) {
	return io.ReadAll(io.LimitReader(r, id.MaxPayloadBytes+1))
}

// parseTags reads k=v pairs.
func parseTags(pairs []string) (map[string]string, error) {
	if len(pairs) > id.MaxTags {
		return nil, usagef("--tag: %d tags, at most %d", len(pairs), id.MaxTags)
	}
	tags := make(map[string]string, len(pairs))
	for _, pair := range pairs {
		key, value, ok := strings.Cut(pair, "=")
		if !ok || key == "" {
			return nil, usagef("--tag %q: not key=value", pair)
		}
		if _, twice := tags[key]; twice {
			return nil, usagef("--tag %q: the key is given twice", pair)
		}
		tags[key] = value
	}
	return tags, nil
}

// exactly names the arguments of a command, so that an error about their number names the missing one.
func exactly(names ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) < len(names) {
			return fmt.Errorf("%s is missing", names[len(args)])
		}
		if len(args) > len(names) {
			return fmt.Errorf("unexpected argument %q", args[len(names)])
		}
		return nil
	}
}
