package mutation

import (
	"regexp"
	"strings"
)

// ending is how the tests of one row came out.
type ending int

const (
	noticed  ending = iota // a test failed
	survived               // all passed
	hung                   // they did not come to an end
	unusable               // there was nothing to run
)

type verdict struct {
	is ending
	// by is the test that failed or hung.
	by string
	// output is the end of what was printed.
	output string
}

func (v verdict) String() string {
	switch v.is {
	case noticed:
		return "fails: " + v.by + "\n" + v.output
	case survived:
		return "survived: the tests pass"
	case hung:
		return "hangs: " + v.by
	}
	return "does not compile or does not run:\n" + v.output
}

var (
	failed   = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)
	stopped  = regexp.MustCompile(`(?m)^(?:panic|fatal error): .*`)
	ran      = regexp.MustCompile(`(?m)^FAIL\t\S+\t[\d.]+s$`)
	timedOut = regexp.MustCompile(`(?m)^panic: test timed out after.*\n(?:\s*running tests:\n)?((?:\s+\S+ \(\d.*\n)*)`)
)

// verdictOf reads the output of `go test` of one package.
func verdictOf(output string, passed bool) verdict {
	v := verdict{output: tail([]byte(output))}
	late := timedOut.FindStringSubmatch(output)
	switch {
	case passed && strings.Contains(output, "no tests to run"):
		v.is = unusable
	case passed:
		v.is = survived
	case !ran.MatchString(output):
		v.is = unusable
	case late != nil:
		v.is = hung
		if running := strings.Fields(late[1]); len(running) > 1 {
			v.by = running[len(running)-2] // a name and its time; a subtest comes below its test
		}
	default:
		v.is, v.by = noticed, innermost(output)
	}
	return v
}

// innermost is the name of the first test that failed, down to the subtest.
func innermost(output string) string {
	name := ""
	for _, m := range failed.FindAllStringSubmatch(output, -1) {
		if name == "" || strings.HasPrefix(m[1], name+"/") {
			name = m[1]
		}
	}
	if name == "" {
		name = stopped.FindString(output)
	}
	return name
}

// tail is the end of an output, which describes a failure.
func tail(output []byte) string {
	const enough = 4000
	if len(output) > enough {
		output = output[len(output)-enough:]
	}
	return strings.TrimSpace(string(output))
}
