package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/csv"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Files that a run writes.
const (
	rejectedFile   = "rejected.csv"
	reportMarkdown = "report.md"
	reportJSON     = "report.json"
	archiveFolder  = "archive"
	manifestFile   = "manifest.json"
)

// RejectedInput are the rejected rows.
type RejectedInput struct {
	Orders    []Reject `json:"orders"`
	Customers []Reject `json:"customers"`
	Products  []Reject `json:"products"`
}

// RejectedRows counts the rejected rows by file.
type RejectedRows struct {
	Note   string         `json:"note"`
	Counts map[string]int `json:"counts"` // by file
}

// rejectedRows writes the rejected rows to a file for the user.
func (s *Shop) rejectedRows(in RejectedInput) (RejectedRows, error) {
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	rows := [][]string{{"file", "line", "why"}}
	out := RejectedRows{Counts: map[string]int{}}
	for _, list := range [][]Reject{in.Orders, in.Customers, in.Products} {
		for _, r := range list {
			rows = append(rows, []string{r.File, strconv.Itoa(r.Line), r.Why})
			out.Counts[r.File]++
		}
	}
	if err := w.WriteAll(rows); err != nil {
		return RejectedRows{}, err
	}
	if err := writeFile(filepath.Join(s.out, rejectedFile), b.Bytes()); err != nil {
		return RejectedRows{}, pathError(rejectedFile, err)
	}
	out.Note = plural(len(rows)-1, "row") + " in " + rejectedFile
	return out, nil
}

// ReportInput is the input of the report.
type ReportInput struct {
	Title    string         `json:"title"`
	Period   string         `json:"period"`
	Summary  Summary        `json:"summary"`
	Rejected map[string]int `json:"rejected"`
	Legacy   *LegacyTotals  `json:"legacy"` // nil: there are none
	By       string         `json:"by"`
}

// ReportFiles are the files of a report.
type ReportFiles struct {
	Note  string `json:"note"`
	Files []File `json:"files"`
}

// File is a file, by name and content.
type File struct {
	Name   string `json:"name"`
	SHA256 string `json:"sha256"`
}

// report writes the report, for people and for programs.
func (s *Shop) report(in ReportInput) (ReportFiles, error) {
	if in.By == "" {
		in.By = "somebody"
	}
	in.Summary.Note = ""
	if in.Legacy != nil {
		in.Legacy.Note = ""
	}
	data, err := json.MarshalIndent(in, "", "  ")
	if err != nil {
		return ReportFiles{}, err
	}
	var out ReportFiles
	for _, f := range []struct {
		name    string
		content []byte
	}{{reportMarkdown, markdown(in)}, {reportJSON, append(data, '\n')}} {
		if err := writeFile(filepath.Join(s.out, f.name), f.content); err != nil {
			return ReportFiles{}, pathError(f.name, err)
		}
		out.Files = append(out.Files, File{f.name, digest(f.content)})
	}
	out.Note = reportMarkdown + ", " + reportJSON + "; approved by " + in.By
	return out, nil
}

func digest(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// markdown is the report for people.
func markdown(in ReportInput) []byte {
	var b bytes.Buffer
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	s := in.Summary
	p("# %s in %s", in.Title, in.Period)
	p("")
	p("%s from %s. Approved by %s.", euros(s.Cents), plural(int(s.Orders), "order"), in.By)
	list := func(title string, amounts []Amount) {
		p("\n| %s | revenue |\n|---|---:|", title)
		for _, a := range amounts {
			p("| %s | %s |", a.Name, euros(a.Cents))
		}
	}
	list("country", s.Countries)
	list("category", s.Categories)
	p("\n| customer | orders | revenue |\n|---|---:|---:|")
	for _, c := range s.Best {
		p("| %s (%s) | %d | %s |", c.Name, c.ID, c.Orders, euros(c.Cents))
	}
	if in.Legacy == nil {
		p("\nThere are no figures of the old shop.")
	} else {
		list("old shop", in.Legacy.Years)
	}
	if len(s.Unknown) > 0 {
		p("\nIn no list: %s.", strings.Join(s.Unknown, ", "))
	}
	p("\nRows rejected: %d in %s, %d in %s, %d in %s.", in.Rejected[ordersFile], ordersFile,
		in.Rejected[customersFile], customersFile, in.Rejected[productsFile], productsFile)
	return b.Bytes()
}

// ArchiveInput is the report to archive.
type ArchiveInput struct {
	Period string `json:"period"`
	Files  []File `json:"files"`
}

// Archived names the archive's folder.
type Archived struct {
	Note   string `json:"note"`
	Folder string `json:"folder"`
}

// archive copies the files of a report into a folder of its month, if they are what the report has written.
func (s *Shop) archive(in ArchiveInput) (Archived, error) {
	if in.Period == "" || in.Period != filepath.Base(in.Period) {
		return Archived{}, final(typeInput, "%q is no month", in.Period)
	}
	folder := filepath.Join(s.out, archiveFolder, in.Period)
	for _, f := range in.Files {
		if f.Name != filepath.Base(f.Name) {
			return Archived{}, final(typeInput, "%q is not the name of a file", f.Name)
		}
		content, err := os.ReadFile(filepath.Join(s.out, f.Name))
		if err != nil {
			return Archived{}, pathError(f.Name, err)
		}
		if got := digest(content); got != f.SHA256 {
			return Archived{}, final(typeFile, "%s was changed after it had been written", f.Name)
		}
		if err := writeFile(filepath.Join(folder, f.Name), content); err != nil {
			return Archived{}, pathError(f.Name, err)
		}
	}
	manifest, err := json.MarshalIndent(in, "", "  ")
	if err != nil {
		return Archived{}, err
	}
	if err := writeFile(filepath.Join(folder, manifestFile), append(manifest, '\n')); err != nil {
		return Archived{}, pathError(manifestFile, err)
	}
	name := archiveFolder + "/" + in.Period
	return Archived{plural(len(in.Files), "file") + " in " + name, name}, nil
}
