package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"perdure/bench/cluster"
	"perdure/bench/report"
	"perdure/bench/suite"
)

// errRegression ends a comparison that found one.
var errRegression = errors.New("a cost has grown beyond the spread")

// roleFolder is in a commit whose load programs can be driven from this one.
const roleFolder = "bench/role"

// compare measures one cell with the former server and the present one, interleaved, and reports the
// verdicts. before is a commit, or empty for the present sources, which s.plant then makes slower on the
// other side.
func (s *settings) compare(ctx context.Context, cells []suite.Cell, dir string, stdout io.Writer) error {
	if len(cells) != 1 {
		return fmt.Errorf("a comparison is of one cell, not of %d", len(cells))
	}
	after := suite.Binaries{Name: "present", Node: s.options.Node, Load: s.options.Load}
	var before suite.Binaries
	var err error
	if s.plant > 0 {
		before, after, err = s.planted(ctx, cells[0], dir)
	} else {
		before, err = s.build(ctx, s.commit, dir)
	}
	if err != nil {
		return err
	}
	figures, verdicts, err := suite.Compare(ctx, s.options, before, after, cells[0])
	if err == nil {
		_, err = io.WriteString(stdout, report.Verdicts("new over old", verdicts)+"\n")
	}
	if err := errors.Join(err, s.report(figures, stdout)); err != nil {
		return err
	}
	return judged(verdicts)
}

// judged is errRegression if one of the verdicts is one.
func judged(verdicts []suite.Verdict) error {
	for _, v := range verdicts {
		if v.Regression {
			return errRegression
		}
	}
	return nil
}

// measureRetained measures a cell on a cluster that purges, against one that keeps everything.
func (s *settings) measureRetained(ctx context.Context, cells []suite.Cell, stdout io.Writer) error {
	if len(cells) != 1 {
		return fmt.Errorf("retention is measured with one cell, not with %d", len(cells))
	}
	figures, verdicts, err := suite.Retained(ctx, s.options, cells[0], s.retained)
	_, failed := io.WriteString(stdout, report.Course(figures)+"\n"+report.Verdicts("purging over keeping", verdicts)+"\n")
	return errors.Join(err, failed, s.report(figures, stdout), judged(verdicts))
}

// measureOffended measures a cell beside namespaces that exceed their quotas, against itself beside namespaces that use them up.
func (s *settings) measureOffended(ctx context.Context, cells []suite.Cell, stdout io.Writer) error {
	if len(cells) != 1 {
		return fmt.Errorf("quotas are measured with one cell, not with %d", len(cells))
	}
	figures, beyond, alone, err := suite.Offended(ctx, s.options, cells[0], s.offend)
	_, failed := io.WriteString(stdout, report.Verdicts("beside quotas exceeded over used up", beyond)+"\n"+
		report.Verdicts("beside quotas exceeded over alone, not judged", alone)+"\n")
	return errors.Join(err, failed, s.report(figures, stdout), judged(beyond))
}

// planted returns the present server, and one whose commands cost more.
func (s *settings) planted(ctx context.Context, cell suite.Cell, dir string) (before, after suite.Binaries, err error) {
	env, err := suite.Plant(ctx, s.options, cell, s.plant)
	if err != nil {
		return before, after, err
	}
	before = suite.Binaries{Name: "present", Node: s.options.Node, Load: s.options.Load}
	after = suite.Binaries{Name: fmt.Sprintf("present, %g %% slower", s.plant), Node: filepath.Join(dir, "node-planted"), Load: s.options.Load, Env: env}
	return before, after, cluster.Build(ctx, s.module, cluster.NodeCommand, after.Node, suite.Burn()...)
}

// build builds a commit's programs in a work tree of its own, which it removes.
func (s *settings) build(ctx context.Context, commit, dir string) (b suite.Binaries, err error) {
	git := func(args ...string) (string, error) {
		out, err := exec.CommandContext(ctx, "git", append([]string{"-C", s.module}, args...)...).CombinedOutput()
		if err != nil {
			return "", fmt.Errorf("git %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
		}
		return strings.TrimSpace(string(out)), nil
	}
	id, err := git("rev-parse", "--verify", "--short", commit+"^{commit}")
	if err != nil {
		return b, err
	}
	tree := filepath.Join(dir, "commit")
	if _, err := git("worktree", "add", "--quiet", "--detach", tree, id); err != nil {
		return b, err
	}
	defer func() {
		// Also after ctx has ended.
		remove := exec.Command("git", "-C", s.module, "worktree", "remove", "--force", tree)
		err = errors.Join(err, remove.Run())
	}()
	b = suite.Binaries{Name: id, Node: filepath.Join(dir, "node-before"), Load: s.options.Load}
	if err := cluster.Build(ctx, tree, cluster.NodeCommand, b.Node); err != nil {
		return b, err
	}
	if _, err := os.Stat(filepath.Join(tree, roleFolder)); err != nil {
		return b, nil // its worker and client are the present ones
	}
	b.Load = filepath.Join(dir, "bench-before")
	return b, cluster.Build(ctx, tree, cluster.BenchCommand, b.Load)
}
