package conformance

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// ask checks one case: the journal's events, then the append's, as JSON texts.
func ask(t *testing.T, appended string, journal ...string) string {
	t.Helper()
	var entries []string
	for _, ev := range journal {
		entries = append(entries, `{"ts":0,"event":`+ev+`}`)
	}
	line := `{"id":"c","eid":[7],"unknown":[],"journal":[` + strings.Join(entries, ",") + `],"append":` + appended + `}`
	var out bytes.Buffer
	if err := CheckLines(strings.NewReader(line), &out); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSuffix(out.String(), "\n")
}

const start = `{"type":"ExecutionStarted","component_digest":"d","input":"","parent_id":[],"idempotency_key":""}`

func TestVerdicts(t *testing.T) {
	const (
		refused = `{"id":"c","accept":false,"status":"Running","nextChildSeq":0}`
		invalid = `{"id":"c","accept":false,"status":"Invalid"}`
	)
	event := func(text string) string { return `{"seq":1,"ts":5,"event":` + text + `}` }
	for _, c := range []struct{ name, got, want string }{
		{"accepted", ask(t, event(`{"type":"TimerScheduled","promise_id":[7,0],"duration":1,"fire_at":-2,"more":true}`), start),
			`{"id":"c","accept":true,"status":"Running","nextChildSeq":1}`},
		{"on an empty journal", ask(t, `{"seq":0,"ts":0,"event":`+start+`}`), `{"id":"c","accept":true,"status":"Running","nextChildSeq":0}`},
		{"nothing on an empty journal", ask(t, `{}`), `{"id":"c","accept":false,"status":"None","nextChildSeq":0}`},
		{"every kind of invocation", ask(t, event(`{"type":"InvokeScheduled","promise_id":[7,0],"kind":"Step","function_name":"f","input":"","retry_policy":""}`), start),
			`{"id":"c","accept":true,"status":"Running","nextChildSeq":1}`},
		{"unknown kind of invocation", ask(t, event(`{"type":"InvokeScheduled","promise_id":[7,0],"kind":"Database","function_name":"f","input":"","retry_policy":""}`), start), refused},
		{"unknown kind of event", ask(t, event(`{"type":"InvokeFailed","promise_id":[7,0]}`), start), refused},
		{"no kind of event", ask(t, event(`{"promise_id":[7,0]}`), start), refused},
		{"missing field", ask(t, event(`{"type":"TimerScheduled","promise_id":[7,0],"duration":1}`), start), refused},
		{"null field", ask(t, event(`{"type":"RandomGenerated","promise_id":[7,0],"value":null}`), start), refused},
		{"field of another type", ask(t, event(`{"type":"RandomGenerated","promise_id":[7,0],"value":5}`), start), refused},
		{"fraction", ask(t, event(`{"type":"TimeRecorded","promise_id":[7,0],"time":1.5}`), start), refused},
		{"negative path", ask(t, event(`{"type":"RandomGenerated","promise_id":[7,-1],"value":""}`), start), refused},
		{"no path", ask(t, event(`{"type":"RandomGenerated","promise_id":[],"value":""}`), start), refused},
		{"path of texts", ask(t, event(`{"type":"RandomGenerated","promise_id":["7"],"value":""}`), start), refused},
		{"negative attempt", ask(t, event(`{"type":"InvokeStarted","promise_id":[7,0],"attempt":-1}`), start), refused},
		{"large attempt", ask(t, event(`{"type":"InvokeStarted","promise_id":[7,0],"attempt":4294967297}`), start), refused},
		{"null event", ask(t, event(`null`), start), refused},
		{"text for an event", ask(t, event(`"ExecutionResumed"`), start), refused},
		{"null append", ask(t, `null`, start), refused},
		{"no sequence", ask(t, `{"ts":1,"event":{"type":"CancelRequested","reason":""}}`, start), refused},
		{"negative sequence", ask(t, `{"seq":-1,"ts":1,"event":{"type":"CancelRequested","reason":""}}`, start), refused},
		{"refused journal", ask(t, event(`{"type":"ExecutionResumed"}`), start, start), invalid},
		{"unreadable journal", ask(t, event(`{"type":"ExecutionResumed"}`), start, `{"type":"X"}`), invalid},
		{"entry without an event", ask(t, event(`{"type":"ExecutionResumed"}`), start+`},{"ts":1`), invalid},
		{"entry that is no object", ask(t, event(`{"type":"ExecutionResumed"}`), start+`},7,{"ts":1`), invalid},
	} {
		if c.got != c.want {
			t.Errorf("%s: %s, want %s", c.name, c.got, c.want)
		}
	}
}

// Waits are sets: the order in a line has no meaning, and the kind has fields of its own.
func TestWaits(t *testing.T) {
	timer := func(n string) string {
		return `{"type":"TimerScheduled","promise_id":[7,` + n + `],"duration":1,"fire_at":2}`
	}
	wait := func(on, kind string) string {
		return ask(t, `{"seq":3,"ts":0,"event":{"type":"ExecutionAwaiting","waiting_on":`+on+`,"kind":`+kind+`}}`, start, timer("0"), timer("1"))
	}
	const (
		blocked  = `{"id":"c","accept":true,"status":"Blocked","nextChildSeq":2}`
		signaled = `{"id":"c","accept":true,"status":"Blocked","nextChildSeq":3}`
		refused  = `{"id":"c","accept":false,"status":"Running","nextChildSeq":2}`
	)
	for _, c := range []struct{ on, kind, want string }{
		{`[[7,1],[7,0]]`, `{"type":"All"}`, blocked},
		{`[[7,1],[7,1]]`, `{"type":"Single"}`, blocked},
		{`[[7,0],[7,1]]`, `{"type":"Single"}`, refused},
		{`[]`, `{"type":"Any"}`, refused},
		{`[[7,0],[8,0]]`, `{"type":"Any"}`, refused},
		{`[[7,0],[7,-1]]`, `{"type":"Any"}`, refused},
		{`[[7,2]]`, `{"type":"AwaitSignal","name":"s","promise_id":[7,2]}`, signaled},
		{`[[7,1]]`, `{"type":"AwaitSignal","name":"s","promise_id":[7,2]}`, refused},
		{`[[7,2]]`, `{"type":"AwaitSignal","name":"s","promise_id":[7,3]}`, refused},
		{`[]`, `{"type":"AwaitSignal","name":"s","promise_id":[7,2]}`, refused},
		{`[[7,1],[7,2]]`, `{"type":"AwaitSignal","name":"s","promise_id":[7,2]}`, refused},
		{`[[7,2]]`, `{"type":"AwaitSignal","promise_id":[7,2]}`, refused},
		{`[[7,2]]`, `{"type":"AwaitSignal","name":"s"}`, refused},
		{`[[7,0]]`, `{"type":"First"}`, refused},
		{`[[7,0]]`, `{}`, refused},
		{`[[7,0]]`, `"Single"`, refused},
		{`[[7,0]]`, `null`, refused},
		{`null`, `{"type":"Any"}`, refused},
	} {
		if got := wait(c.on, c.kind); got != c.want {
			t.Errorf("%s %s: %s, want %s", c.on, c.kind, got, c.want)
		}
	}
}

// An unreadable line gets a verdict too, and CheckLines continues. Empty lines get none.
func TestLinesThatAreNoCases(t *testing.T) {
	input := "{\"id\":3}\n\n   \nnonsense\n[1]\nnull\n{\"eid\":[1],\"journal\":[],\"append\":{}}\r\n{\"id\":\"x\",\"eid\":[1],\"journal\":7}"
	want := `{"id":3,"accept":false,"status":"Invalid"}
{"id":null,"accept":false,"status":"Invalid"}
{"id":null,"accept":false,"status":"Invalid"}
{"id":null,"accept":false,"status":"Invalid"}
{"id":null,"accept":false,"status":"None","nextChildSeq":0}
{"id":"x","accept":false,"status":"Invalid"}
`
	for _, reader := range []io.Reader{strings.NewReader(input), iotest.OneByteReader(strings.NewReader(input))} {
		var out bytes.Buffer
		if err := CheckLines(reader, &out); err != nil || out.String() != want {
			t.Errorf("%v\n%s, want\n%s", err, out.String(), want)
		}
	}
}

// A line may be longer than any buffer.
func TestLongLines(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	text, err := json.Marshal(long)
	if err != nil {
		t.Fatal(err)
	}
	got := ask(t, `{"seq":1,"ts":1,"event":{"type":"ExecutionCompleted","result":`+string(text)+`}}`, start)
	if want := `{"id":"c","accept":true,"status":"Completed","nextChildSeq":0}`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// A verdict is no error. A broken reader or writer is one, after all verdicts before it.
func TestBrokenStreams(t *testing.T) {
	broken := errors.New("broken")
	var out bytes.Buffer
	err := CheckLines(io.MultiReader(strings.NewReader("{}\n"), iotest.ErrReader(broken)), &out)
	if !errors.Is(err, broken) || out.String() != "{\"id\":null,\"accept\":false,\"status\":\"Invalid\"}\n" {
		t.Errorf("%v, written %q", err, out.String())
	}
	for _, input := range []string{"{}", strings.Repeat("{}\n", 1000)} {
		if err := CheckLines(strings.NewReader(input), failingWriter{broken}); !errors.Is(err, broken) {
			t.Errorf("%d bytes in: %v", len(input), err)
		}
	}
}

type failingWriter struct{ err error }

func (w failingWriter) Write([]byte) (int, error) { return 0, w.err }
