package workload

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"perdure/bench/load"
	"perdure/client"
	"perdure/durable"
)

// TestAll: letters and names are each workload's own, and a worker can have the functions of all.
func TestAll(t *testing.T) {
	seen := map[string]bool{}
	for _, w := range All() {
		for _, name := range []string{w.Letter, w.Name} {
			if name == "" || seen[strings.ToLower(name)] {
				t.Errorf("%q is empty or taken", name)
			}
			seen[strings.ToLower(name)] = true
			if found, err := Find(strings.ToUpper(name)); err != nil || len(found) != 1 || found[0] != w {
				t.Errorf("%q finds %v, %v", name, found, err)
			}
		}
		if w.Title == "" || w.Unit == "" || w.run == nil {
			t.Errorf("%s lacks a title, a unit or a program", w.Name)
		}
	}
	if all, err := Find("all"); err != nil || len(all) != len(All()) {
		t.Errorf("all finds %d of %d, %v", len(all), len(All()), err)
	}
	for _, w := range offending() {
		if found, err := Find(w.Name); err != nil || len(found) != 1 || found[0] != w || w.run == nil {
			t.Errorf("%s finds %v, %v", w.Name, found, err)
		}
	}
	if _, err := Find("echo,none"); err == nil || !strings.Contains(err.Error(), `"none"`) {
		t.Errorf("an unknown name: %v", err)
	}
	c, err := client.Dial(client.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	Register(durable.NewWorker(c, durable.WorkerOptions{})) // it panics if two functions have a name
}

// TestMeasure: a job marks the bounds of its window, and fails with an operation that fails.
func TestMeasure(t *testing.T) {
	var marks []Mark
	e := &env{Job: Job{Prefix: "p", Load: load.Options{Concurrency: 2, Count: 10}}, mark: func(m Mark) { marks = append(marks, m) },
		clients: make([]*client.Client, 2)}
	ids := make(chan string, 10)
	r, err := e.measure(t.Context(), func(_ context.Context, n int64) error { ids <- e.id(n); return nil })
	if err != nil || r.Begun != 10 || r.Counted != 10 || len(marks) != 2 || marks[0] != Begin || marks[1] != End {
		t.Errorf("%+v, marks %v, %v", r, marks, err)
	}
	close(ids)
	seen := map[string]bool{}
	for id := range ids {
		if !strings.HasPrefix(id, "p-") || seen[id] {
			t.Errorf("an operation has the id %s", id)
		}
		seen[id] = true
	}
	if _, err := e.measure(t.Context(), func(_ context.Context, n int64) error {
		if n == 3 {
			return errors.New("broken")
		}
		return nil
	}); err == nil || !strings.Contains(err.Error(), "broken") {
		t.Errorf("a failed operation: %v", err)
	}
}
