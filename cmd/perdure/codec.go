package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/reflect/protoreflect"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
	"perdure/durable"
	"perdure/id"
)

// envCodec is the environment's --codec-command.
const envCodec = "PERDURE_CODEC_COMMAND"

// Bounds of a codec command.
const (
	codecAnswerWithin = 10 * time.Second
	codecExitWithin   = 2 * time.Second
	maxCodecLine      = 16 << 20
	maxCodecError     = 160 // runes of an error that are shown
)

// direction says what a codec command shall do with a payload.
type direction string

const (
	decoding direction = "decode"
	encoding direction = "encode"
)

// codecRequest is a line on a codec command's stdin.
type codecRequest struct {
	Direction direction    `json:"direction"`
	Data      []byte       `json:"data"`
	Context   codecContext `json:"context"`
}

// codecContext says whose payload it is.
type codecContext struct {
	Namespace string `json:"namespace"`
	ID        string `json:"id"`
	What      string `json:"what"`
}

// codecAnswer is a line on a codec command's stdout: the payload, or why there is none.
type codecAnswer struct {
	Data  *[]byte `json:"data"`
	Error string  `json:"error"`
}

// codecError reports that a codec command did not convert a payload.
type codecError struct{ message string }

func (e *codecError) Error() string { return e.message }

// codec converts payloads. Its errors are *codecError; Close returns the one that made it useless.
type codec interface {
	convert(ctx context.Context, r codecRequest) ([]byte, error)
	Close() error
}

// commandCodec converts payloads by a command that it starts for the first one. Close ends the command. After a
// failure of the command itself every conversion fails at once.
type commandCodec struct {
	command string
	within  time.Duration
	stderr  io.Writer

	cmd     *exec.Cmd
	stdin   io.WriteCloser
	stdout  io.ReadCloser
	answers *bufio.Scanner
	waited  bool
	// broken is the first failure of the command itself.
	broken error
}

// convert asks the command to convert one payload, and waits at most c.within for the answer.
func (c *commandCodec) convert(ctx context.Context, r codecRequest) ([]byte, error) {
	if c.broken != nil {
		return nil, c.broken
	}
	line, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	if len(line) >= maxCodecLine {
		return nil, &codecError{fmt.Sprintf("request of %d bytes exceeds %d", len(line), maxCodecLine)}
	}
	answer, err := c.exchange(ctx, append(line, '\n'))
	if err != nil {
		c.broken = &codecError{fmt.Sprintf("codec command %s: %v", printable(c.command), err)}
		c.stop()
		return nil, c.broken
	}
	if answer.Error != "" {
		return nil, &codecError{answer.Error}
	}
	return *answer.Data, nil
}

// exchange writes a request and reads its answer. An error means that the command is of no more use.
func (c *commandCodec) exchange(ctx context.Context, line []byte) (answer codecAnswer, err error) {
	if c.cmd == nil {
		if err := c.start(); err != nil {
			return answer, err
		}
	}
	limited, cancel := context.WithTimeout(ctx, c.within)
	defer cancel()
	stopped := make(chan struct{})
	stop := context.AfterFunc(limited, func() {
		defer close(stopped)
		_ = c.cmd.Process.Kill() // it may have ended
		_ = c.stdin.Close()      // ends the write
		_ = c.stdout.Close()     // ends the read
	})
	_, writeErr := c.stdin.Write(line)
	read := c.answers.Scan()
	if !stop() {
		<-stopped
		if ctx.Err() != nil {
			return answer, ctx.Err()
		}
		return answer, fmt.Errorf("no answer within %s", c.within)
	}
	switch {
	case !read && c.answers.Err() != nil:
		return answer, fmt.Errorf("read its answer: %w", c.answers.Err())
	case !read:
		if err := c.wait(); err != nil {
			return answer, fmt.Errorf("ended without an answer: %w", err)
		}
		return answer, errors.New("ended without an answer")
	case writeErr != nil:
		return answer, writeErr
	}
	if err := json.Unmarshal(c.answers.Bytes(), &answer); err != nil {
		return answer, fmt.Errorf("answer of %d bytes is not {\"data\": BASE64} or {\"error\": TEXT}: %w", len(c.answers.Bytes()), err)
	}
	if (answer.Data == nil) == (answer.Error == "") {
		return answer, errors.New(`answer needs "data" or "error", and not both`)
	}
	return answer, nil
}

func (c *commandCodec) start() error {
	words := strings.Fields(c.command)
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Stderr = c.stderr
	cmd.WaitDelay = codecExitWithin
	var err error
	if c.stdin, err = cmd.StdinPipe(); err != nil {
		return err
	}
	if c.stdout, err = cmd.StdoutPipe(); err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	c.cmd = cmd
	c.answers = bufio.NewScanner(c.stdout)
	c.answers.Buffer(make([]byte, 0, 64<<10), maxCodecLine)
	return nil
}

// wait waits until the command has ended, and kills it if that takes long.
func (c *commandCodec) wait() error {
	c.waited = true
	_ = c.stdin.Close() // an error means that it is closed
	kill := time.AfterFunc(codecExitWithin, func() { _ = c.cmd.Process.Kill() })
	defer kill.Stop()
	return c.cmd.Wait()
}

// stop kills a command that has failed.
func (c *commandCodec) stop() {
	if c.cmd != nil && !c.waited {
		_ = c.cmd.Process.Kill()
		_ = c.wait() // it was killed
	}
}

// Close ends the command and returns its failure, if it had one. Its exit code does not matter: it has answered.
func (c *commandCodec) Close() error {
	if c.cmd != nil && !c.waited {
		_ = c.wait()
	}
	return c.broken
}

// setCodec reads --codec-command or --codec-server. Only without both flags their environment variables count.
func (a *app) setCodec() error {
	command, server := a.codecCommand, a.codecServer
	if command == "" && server == "" {
		command, _ = a.lookup(envCodec)
		server, _ = a.lookup(envCodecServer)
	}
	switch {
	case command != "" && server != "":
		return usagef("--codec-command and --codec-server: only one of them may be given")
	case server != "":
		authorization, _ := a.lookup(envCodecAuth)
		c, err := newServerCodec(server, authorization, codecAnswerWithin)
		if err != nil {
			return err
		}
		a.codec = c
	case strings.TrimSpace(command) != "":
		a.codec = &commandCodec{command: command, within: codecAnswerWithin, stderr: a.stderr}
	case command != "":
		return usagef("--codec-command %q: the program is missing", command)
	}
	return nil
}

// closeCodec ends the codec command. err is the command line's own error, which counts more than the codec's.
func (a *app) closeCodec(err error) error {
	if a.codec == nil {
		return err
	}
	if broken := a.codec.Close(); err == nil {
		return broken
	}
	return err
}

// convert passes a payload through the codec command, if there is one. An empty payload stays empty.
func (a *app) convert(ctx context.Context, d direction, id, what string, payload []byte) ([]byte, error) {
	if a.codec == nil || len(payload) == 0 {
		return payload, nil
	}
	return a.codec.convert(ctx, codecRequest{d, payload, codecContext{a.namespace, id, what}})
}

// payload reads a payload flag and encodes it.
func (a *app) payload(ctx context.Context, p *payloadFlag, of string) ([]byte, error) {
	clear, err := p.read(a.stdin)
	if err != nil {
		return nil, err
	}
	return a.encode(ctx, of, p.name, clear)
}

// encode encodes a payload for the cluster.
func (a *app) encode(ctx context.Context, of, what string, clear []byte) ([]byte, error) {
	payload, err := a.convert(ctx, encoding, of, what, clear)
	switch {
	case err != nil:
		return nil, &codecError{fmt.Sprintf("cannot encode --%s: %v", what, err)}
	case len(payload) > id.MaxPayloadBytes:
		return nil, usagef("--%s: %d bytes when encoded, the limit is %d", what, len(payload), id.MaxPayloadBytes)
	}
	return payload, nil
}

// decodeResult decodes a payload that is printed byte for byte, so there is no place for a remark.
func (a *app) decodeResult(ctx context.Context, of string, payload []byte) ([]byte, error) {
	clear, err := a.convert(ctx, decoding, of, "result", payload)
	if err != nil {
		return nil, &codecError{fmt.Sprintf("cannot decode the result of %q, %d bytes: %v", of, len(payload), err)}
	}
	return clear, nil
}

// cannotDecode begins what is shown in place of a payload that the codec command refuses.
const cannotDecode = "<cannot decode: "

// isUndecoded reports whether a text is one that undecodedText has made, or could have.
func isUndecoded(text string) bool {
	return strings.HasPrefix(text, cannotDecode) && utf8.RuneCountInString(text) <= maxCodecError+len(cannotDecode)+len("> (4194304 bytes)")
}

// undecodedText is shown in place of a payload.
func undecodedText(payload []byte, err error) string {
	text := []rune(err.Error())
	if len(text) > maxCodecError {
		text = append(text[:maxCodecError-1], '…')
	}
	return fmt.Sprintf("%s%s> (%d bytes)", cannotDecode, string(text), len(payload))
}

// undecoded takes the place of a payload. JSON: an object with the members cannot_decode and bytes.
func (a *app) undecoded(payload []byte, err error) []byte {
	if a.json {
		return appendJSON(nil, object{{"cannot_decode", err.Error()}, {"bytes", len(payload)}})
	}
	return []byte(undecodedText(payload, err))
}

// decode replaces the payloads of a message, and of the messages in it, by the decoded ones. what is the name
// of the field that holds the message.
func (a *app) decode(ctx context.Context, of, what string, m protoreflect.Message) {
	if a.codec == nil {
		return
	}
	if f, is := m.Interface().(*perdurev1.Failure); is {
		a.decodeFailure(ctx, of, f)
		return
	}
	if !holdsPayloads(m) {
		return
	}
	_, outcome := m.Interface().(*perdurev1.Outcome)
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		name := string(f.Name())
		switch {
		case f.IsList() || f.IsMap():
		case f.Kind() == protoreflect.MessageKind:
			a.decode(ctx, of, name, v.Message())
		case f.Kind() == protoreflect.BytesKind:
			if outcome && what != "" {
				name = what
			}
			clear, err := a.convert(ctx, decoding, of, name, v.Bytes())
			if err != nil {
				clear = a.undecoded(v.Bytes(), err)
			}
			m.Set(f, protoreflect.ValueOfBytes(clear))
		}
		return true
	})
}

// holdsPayloads reports whether the bytes of a message are payloads of a function. A random value is the
// cluster's, and the input of a one-way operation is the id of its target.
func holdsPayloads(m protoreflect.Message) bool {
	switch e := m.Interface().(type) {
	case *perdurev1.RandomGenerated:
		return false
	case *perdurev1.InvokeScheduled:
		return e.GetKind() != perdurev1.InvokeKind_INVOKE_KIND_SEND
	}
	return true
}

// decodeFailure decodes the message and details of a failure, if a codec has encoded them.
func (a *app) decodeFailure(ctx context.Context, of string, f *perdurev1.Failure) {
	encoded := f.GetDetails()
	err := durable.UnsealFailure(f, func(data []byte) ([]byte, error) {
		encoded = data
		return a.convert(ctx, decoding, of, "failure", data)
	})
	if err != nil {
		f.Message = undecodedText(encoded, err)
	}
}

// decodeError decodes the failure in the error of an execution.
func (a *app) decodeError(ctx context.Context, err error) error {
	var failed *client.ExecutionError
	if a.codec != nil && errors.As(err, &failed) {
		a.decodeFailure(ctx, failed.ID, failed.Failure)
	}
	return err
}
