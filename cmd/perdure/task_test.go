package main

import (
	"regexp"
	"testing"
	"time"
)

// times are the moments that commands print.
var times = regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:]+Z( \([^)]*\))?|"[0-9]{13}"|[0-9]{13}|\b[0-9.]+(ms|s) ago\b|\bnow\b|\bjust now\b`)

// columns are those of moments, with the space up to the next column.
var columns = regexp.MustCompile(`(TIME|CREATED) {2,}`)

// An operator works on tasks by hand, against a node.
func TestTaskCommands(t *testing.T) {
	t.Parallel() // it waits for the node most of the time
	sh := bankNode(t)
	// A column of moments is as wide as the longest of them.
	sh.now, sh.hide = time.Now, func(text string) string {
		return columns.ReplaceAllString(times.ReplaceAllString(text, "TIME"), "$1  ")
	}
	sh.story(t, "task",
		"task search",
		"# A task that is created is held by its creator.",
		`task create order-42 --target poll://any@default --pid laptop --ttl 1h --param '{"item": 7}' --tag team=billing`,
		"task get order-42",
		"task heartbeat order-42 --version 1 --pid laptop",
		"# Whoever names another version or process does not hold it.",
		"task heartbeat order-42 --version 1 --pid other",
		"task fulfill order-42 --version 2 --value true",
		"task acquire order-42 --version 1 --pid other",
		"# Given back, it is acquired at the version that it is pending at, and held at the next one.",
		"task release order-42 --version 1",
		"task acquire order-42 --version 1 --pid other --ttl 90m",
		"# A task awaits promises of its origin.",
		"task suspend order-42 --version 2",
		"task suspend order-42 --version 2 --await order-42:0",
		"task suspend order-42 --version 2 --await another",
		"# Out of service and back.",
		"task halt order-42",
		"task release order-42 --version 2",
		"task continue order-42",
		"task continue order-42",
		"task acquire order-42 --version 2 --pid laptop --ttl 1h --json",
		"task fulfill order-42 --version 3 --value true",
		"task fulfill order-42 --version 3 --value true",
		"task halt order-42",
		"promise get order-42",
		"# Several of them.",
		"task create order-43 --target poll://any@default --pid laptop --ttl 1h --timeout 2h",
		"task fulfill order-43 --version 1 --rejected --value '{\"message\": \"sold out\"}'",
		"promise create approval-7 --timeout 24h --tag team=billing",
		"task search",
		"task search --limit 1",
		"task search --state fulfilled --limit 1 --json",
		"task search --state acquired",
		"promise search",
		"promise search --tag team=billing --state resolved",
		"promise search --limit 1 --json",
		"promise search --state rejected",
		"# What is missing or wrong.",
		"task get none",
		"task get approval-7",
		"task acquire none --version 0 --pid laptop",
		"task acquire order-42 --pid laptop",
		"task acquire order-42 --version 0",
		"task acquire order-42 --version -1 --pid laptop",
		"task acquire order-42 --version 0 --pid laptop --ttl 0s",
		"task create order-44 --target nowhere --pid laptop",
		"task create order-44 --pid laptop",
		"task create order-44 --target poll://any@default --pid laptop --tag team",
		"task search --state done",
		"task search --limit -1",
		"promise search --state done",
		"promise search --limit -1",
		"promise search --tag team",
		"task",
		"task frobnicate",
	)
}
