package main

import (
	"encoding/hex"
	"fmt"
	"sort"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"

	perdurev1 "perdure/api/perdure/v1"
)

// previewRunes bounds a payload's preview in a table.
const previewRunes = 72

// table writes aligned columns to stdout.
func (a *app) table() *tabwriter.Writer { return tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0) }

// printable makes text safe for a terminal: it shows other characters by their codes, so that no text
// stored by others can control the reader's terminal or break a table.
func printable(s string) string {
	clean := utf8.ValidString(s) && strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) < 0
	if clean {
		return s
	}
	return strconv.Quote(s)
}

// dash is text, or a dash where there is none, so that no column is empty.
func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// orDash is dash of text that others wrote.
func orDash(s string) string { return dash(printable(s)) }

// sentences is a message for people that may have several lines; its other control characters are shown
// by their codes.
func sentences(s string) string {
	var b strings.Builder
	for _, r := range strings.ToValidUTF8(s, "\uFFFD") {
		if r == '\n' || r == '\t' || unicode.IsPrint(r) {
			b.WriteRune(r)
			continue
		}
		quoted := strconv.QuoteRune(r)
		b.WriteString(quoted[1 : len(quoted)-1])
	}
	return b.String()
}

// shellWord is text as one word of a command line that can be pasted.
func shellWord(s string) string {
	plain := s != "" && strings.IndexFunc(s, func(r rune) bool {
		return !(r < utf8.RuneSelf && (unicode.IsLetter(r) || unicode.IsDigit(r)) || strings.ContainsRune("-_./:@%+=,", r))
	}) < 0
	if plain {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// preview shows the beginning of a payload: its text when it is text, else its first bytes.
func preview(payload []byte) string {
	if len(payload) == 0 {
		return "(empty)"
	}
	text := string(payload)
	if compact, ok := compactJSON(payload); ok {
		text = string(compact)
	}
	if !utf8.ValidString(text) {
		return fmt.Sprintf("(%d bytes, not text)", len(payload))
	}
	if utf8.RuneCountInString(text) > previewRunes && !isUndecoded(text) {
		runes := []rune(text[:min(len(text), previewRunes*utf8.UTFMax)])
		return printable(string(runes[:previewRunes])) + fmt.Sprintf("… (%d bytes)", len(payload))
	}
	return printable(text)
}

// outcomeText shows how an operation ended.
func outcomeText(o *perdurev1.Outcome) string {
	if f := o.GetFailure(); f != nil {
		return "failed: " + failureText(f)
	}
	return preview(o.GetValue())
}

func failureText(f *perdurev1.Failure) string {
	text := orDash(f.GetType())
	if f.GetMessage() != "" {
		text += ": " + printable(f.GetMessage())
	}
	if f.GetNonRetryable() {
		text += " (not retried)"
	}
	return text
}

func statusText(s perdurev1.ExecutionStatus) string { return enumName(s.Descriptor(), int32(s)) }

// since shows how long ago a time was, or how long it is until then: "3m ago", "in 2h"; "-" for none.
func (a *app) since(ms int64) string {
	if ms == 0 {
		return "-"
	}
	switch d := a.now().Sub(time.UnixMilli(ms)); {
	case d >= time.Second:
		return span(d) + " ago"
	case d <= -time.Second:
		return "in " + span(-d)
	case d < 0:
		return "in under a second"
	default:
		return "now"
	}
}

// span is a length of time in its two largest units at most.
func span(d time.Duration) string {
	const day = 24 * time.Hour
	two := func(big, small time.Duration, bigUnit, smallUnit string) string {
		text := strconv.FormatInt(int64(d/big), 10) + bigUnit
		if rest := d % big / small; rest > 0 {
			text += strconv.FormatInt(int64(rest), 10) + smallUnit
		}
		return text
	}
	switch {
	case d < time.Second:
		return strconv.FormatInt(d.Milliseconds(), 10) + "ms"
	case d < time.Minute:
		return strconv.FormatInt(int64(d/time.Second), 10) + "s"
	case d < time.Hour:
		return two(time.Minute, time.Second, "m", "s")
	case d < day:
		return two(time.Hour, time.Minute, "h", "m")
	default:
		return two(day, time.Hour, "d", "h")
	}
}

// clock is a time of a journal, in the reader's zone.
func (a *app) clock(ms int64) string {
	return time.UnixMilli(ms).In(a.zone).Format("2006-01-02 15:04:05.000")
}

// moment is a time with its zone, and how far it is from now.
func (a *app) moment(ms int64) string {
	return time.UnixMilli(ms).In(a.zone).Format(time.RFC3339) + " (" + a.since(ms) + ")"
}

// tagText formats tags as a sorted list of key=value pairs.
func tagText(tags map[string]string) string {
	pairs := make([]string, 0, len(tags))
	for k, v := range tags {
		if strings.HasPrefix(k, "$") {
			continue // the cluster's own
		}
		pairs = append(pairs, printable(k+"="+v))
	}
	sort.Strings(pairs)
	return strings.Join(pairs, ", ")
}

func randomText(value []byte) string { return hex.EncodeToString(value) }

// millisText is a wire duration as Go writes durations.
func millisText(ms int64) string { return (time.Duration(ms) * time.Millisecond).String() }
