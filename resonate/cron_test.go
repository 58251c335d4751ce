package resonate

import (
	"testing"
	"time"
)

func TestCron(t *testing.T) {
	at := func(s string) int64 {
		when, err := time.Parse(time.DateTime, s)
		if err != nil {
			t.Fatal(err)
		}
		return when.UnixMilli()
	}
	friday := "2026-11-20 12:00:00"
	for _, c := range []struct{ expression, after, want string }{
		{"* * * * *", friday, "2026-11-20 12:01:00"},
		{"*/5 * * * *", "2026-11-20 12:03:59", "2026-11-20 12:05:00"},
		{"* * * * * *", friday, "2026-11-20 12:00:01"},
		{"30 0 12 * * *", friday, "2026-11-20 12:00:30"},
		{"0 9 * * MON-FRI", friday, "2026-11-23 09:00:00"},
		{"0 9 * * 2-6", friday, "2026-11-23 09:00:00"},
		{"0 9 * * 1", friday, "2026-11-22 09:00:00"},
		{"0 9 * * 7", friday, "2026-11-21 09:00:00"},
		{"0 9 * * 1,4", friday, "2026-11-22 09:00:00"},
		{"0 9 * * 1-7/2", friday, "2026-11-21 09:00:00"},
		{"0 0 29 2 *", friday, "2028-02-29 00:00:00"},
	} {
		table, err := parseCron(c.expression)
		if err != nil {
			t.Errorf("%s: %v", c.expression, err)
			continue
		}
		if got, ok := table.next(at(c.after)); !ok || got != at(c.want) {
			t.Errorf("%s after %s is %s, want %s", c.expression, c.after, time.UnixMilli(got).UTC().Format(time.DateTime), c.want)
		}
	}
	for _, expression := range []string{"", "* * * *", "* * * * * * *", "@every 1s", "@daily", "TZ=UTC * * * * *", "CRON_TZ=Europe/Berlin * * * * *", "60 * * * *",
		"* * * * 0", "* * * * 8", "0 0 30 2 *", "TZ=0", "a b c d e", "* * * * 99999999999999999999"} {
		if _, err := parseCron(expression); err == nil {
			t.Errorf("%q is an expression", expression)
		}
	}
}

// No expression makes the parser panic.
func FuzzCron(f *testing.F) {
	f.Add("*/5 1-3 * JAN MON#2")
	f.Add("TZ=0 * * * *")
	f.Fuzz(func(t *testing.T, expression string) {
		table, err := parseCron(expression)
		if err != nil {
			return
		}
		first, _ := table.next(0)
		if second, ok := table.next(first); ok && second <= first {
			t.Errorf("%q: %d after %d", expression, second, first)
		}
	})
}
