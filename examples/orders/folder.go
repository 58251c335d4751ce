package main

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"perdure/client"
)

// Files of a run in the work folder, besides the world's files and the results.
const (
	claimName = "run.json" // which run the folder belongs to
	dataName  = "perdure-data"
	logName   = "run.log"
)

// defaultWork is the work folder of a node of its own; that of a cluster has a longer name (folderOf).
const defaultWork = "orders-run"

// Claim names the run that a work folder belongs to. The world's files have half of an order's state, the
// cluster has the other half. With another cluster, the warehouse would take goods as picked that no order
// there has asked for yet.
type Claim struct {
	Cluster   string `json:"cluster"`
	Namespace string `json:"namespace"`
	// Run makes the ids of the run's orders its own: a cluster keeps the orders of all runs that it has
	// seen. Empty in a folder with a node of its own, which knows no other run.
	Run string `json:"run"`
}

// folderOf is the work folder for a cluster when the user has named none: each cluster has its own.
func folderOf(cluster, namespace string) string {
	name := defaultWork + "-" + word(cluster[:min(8, len(cluster))])
	if namespace != client.DefaultNamespace {
		name += "-" + word(namespace)
	}
	return name
}

// word is s with every character replaced that does not belong in a file's name.
func word(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '-' || r == '_' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' {
			return r
		}
		return '_'
	}, s)
}

// claim makes dir the folder of a run on this cluster and in this namespace, or finds the run that it is of
// already, and returns its name. Several processes may do so at once; they get the same run. It is called
// before any of the world's files is there, so a folder that has those and no claim is refused, as is one
// of another cluster.
func claim(dir string, mine Claim) (run string, err error) {
	path := filepath.Join(dir, claimName)
	_, missing := os.Stat(filepath.Join(dir, effectsFile)) // before the claim is read: others write it first
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		if missing == nil {
			return "", fmt.Errorf("%s has the files of a run but not %s, which names the run; use another --work, or --fresh", dir, claimName)
		}
		if err := writeClaim(path, mine); err != nil {
			return "", err
		}
		data, err = os.ReadFile(path)
	}
	if err != nil {
		return "", err
	}
	var found Claim
	if err := json.Unmarshal(data, &found); err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	switch {
	case found.Cluster != mine.Cluster:
		return "", fmt.Errorf("%s is of a run on another cluster (%s; this one is %s): take another --work, or --fresh", dir, found.Cluster, mine.Cluster)
	case found.Namespace != mine.Namespace:
		return "", fmt.Errorf("%s is of a run in the namespace %q, not %q: take another --work, or --fresh", dir, found.Namespace, mine.Namespace)
	}
	return found.Run, nil
}

// writeClaim writes a claim, whole or not at all, unless there is one.
func writeClaim(path string, c Claim) error {
	data, err := json.Marshal(c)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), claimName+".*")
	if err != nil {
		return err
	}
	_, err = f.Write(append(data, '\n'))
	if err = errors.Join(err, f.Close()); err == nil {
		if err = os.Link(f.Name(), path); errors.Is(err, os.ErrExist) {
			err = nil
		}
	}
	return errors.Join(err, os.Remove(f.Name()))
}

// newRun draws the name of a run: it is new in any cluster.
func newRun() string { return strings.ToLower(rand.Text()[:8]) }

// removeRun removes the files of earlier runs, and nothing else. It removes the claim first: if it then
// fails, the remaining files are not taken for a run.
func removeRun(dir string) error {
	var errs []error
	for _, name := range []string{claimName, dataName, effectsFile, acksFile, picksFile, resultsFile, logName} {
		errs = append(errs, os.RemoveAll(filepath.Join(dir, name)))
	}
	return errors.Join(errs...)
}
