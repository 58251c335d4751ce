package main

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"perdure/durable"
)

// ParseInput is the input of parse-csv.
type ParseInput struct {
	File    string   `json:"file"`
	Columns []string `json:"columns"` // what the first line must say
}

// FileInput is the name of a file.
type FileInput struct {
	File string `json:"file"`
}

// Table is a file of rows, each with as many cells as there are columns.
type Table struct {
	Note     string   `json:"note"`
	File     string   `json:"file"`
	Rows     []Row    `json:"rows"`
	Rejected []Reject `json:"rejected"`
}

// Row is one row; lines count from 1.
type Row struct {
	Line  int      `json:"line"`
	Cells []string `json:"cells"`
}

func (s *Shop) read(name string) ([]byte, error) {
	if name == "" || name != filepath.Base(name) {
		return nil, final(typeInput, "%q is not the name of a file", name)
	}
	content, err := os.ReadFile(filepath.Join(s.data, name))
	if err != nil {
		return nil, pathError(name, err)
	}
	return content, nil
}

// parseCSV reads a file. It rejects a row of the wrong length, and refuses a file that is no CSV.
func (s *Shop) parseCSV(in ParseInput) (Table, error) {
	content, err := s.read(in.File)
	if err != nil {
		return Table{}, err
	}
	r := csv.NewReader(bytes.NewReader(content))
	r.FieldsPerRecord = -1
	records, lines := [][]string{}, []int{}
	for {
		record, err := r.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if wrong := (*csv.ParseError)(nil); errors.As(err, &wrong) {
			return Table{}, failure(typeFile, "%s: line %d: %v", in.File, wrong.StartLine, wrong.Err)
		}
		line, _ := r.FieldPos(0)
		records, lines = append(records, record), append(lines, line)
	}
	if len(records) == 0 || !slices.Equal(records[0], in.Columns) {
		return Table{}, failure(typeFile, "%s: the first line must be %s", in.File, strings.Join(in.Columns, ","))
	}
	t := Table{File: in.File, Rows: []Row{}, Rejected: []Reject{}}
	for i, record := range records {
		switch {
		case i == 0:
		case len(record) != len(in.Columns):
			t.Rejected = append(t.Rejected, Reject{in.File, lines[i], fmt.Sprintf("%d cells, expected %d", len(record), len(in.Columns))})
		default:
			t.Rows = append(t.Rows, Row{lines[i], record})
		}
	}
	t.Note = note(len(t.Rows), "row", len(t.Rejected))
	return t, nil
}

// Rates are the euros that one unit of a currency is worth, in millionths.
type Rates struct {
	Note  string           `json:"note"`
	Date  string           `json:"date"`
	Rates map[string]int64 `json:"rates"`
}

func (s *Shop) parseRates(in FileInput) (Rates, error) {
	content, err := s.read(in.File)
	if err != nil {
		return Rates{}, err
	}
	var file struct {
		Base  string            `json:"base"`
		Date  string            `json:"date"`
		Rates map[string]string `json:"rates"`
	}
	if err := json.Unmarshal(content, &file); err != nil {
		return Rates{}, failure(typeFile, "%s: %v", in.File, err)
	}
	if file.Base != "EUR" {
		return Rates{}, final(typeFile, "%s: the base is %q, expected EUR", in.File, file.Base)
	}
	out := Rates{Date: file.Date, Rates: map[string]int64{"EUR": 1_000_000}}
	for currency, text := range file.Rates {
		rate, ok := decimal(text, 6)
		if !ok || rate == 0 {
			return Rates{}, final(typeFile, "%s: the rate of %s is %q", in.File, currency, text)
		}
		out.Rates[currency] = rate
	}
	out.Note = fmt.Sprintf("%d currencies of %s", len(out.Rates), out.Date)
	return out, nil
}

// decimal reads a number that is not negative, with up to so many digits behind the point, as a whole number
// of its last place.
func decimal(text string, places int) (int64, bool) {
	whole, rest, _ := strings.Cut(text, ".")
	if whole == "" || len(whole) > 9 || len(rest) > places || strings.HasSuffix(text, ".") {
		return 0, false
	}
	var n int64
	for _, c := range whole + rest + strings.Repeat("0", places-len(rest)) {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	return n, true
}

// LegacyRows is the old shop's data.
type LegacyRows struct {
	Note string      `json:"note"`
	Rows []LegacyRow `json:"rows"`
}

// LegacyRow is the revenue of a year in one category.
type LegacyRow struct {
	Year     string `json:"year"`
	Category string `json:"category"`
	Cents    int64  `json:"cents"`
}

// legacyImport takes the old shop's file as a whole or not at all. Its failure is retried: the file may still
// be on its way.
func (s *Shop) legacyImport(in FileInput) (LegacyRows, error) {
	t, err := s.parseCSV(ParseInput{File: in.File, Columns: legacyColumns})
	if err != nil {
		return LegacyRows{}, err
	}
	if len(t.Rejected) > 0 {
		return LegacyRows{}, failure(typeFile, "%s: line %d: %s", in.File, t.Rejected[0].Line, t.Rejected[0].Why)
	}
	out := LegacyRows{Note: t.Note, Rows: []LegacyRow{}} // not nil, which would mean that it was skipped
	for _, row := range t.Rows {
		cents, ok := decimal(row.Cells[2], 2)
		if !ok {
			return LegacyRows{}, failure(typeFile, "%s: line %d: the revenue is %q", in.File, row.Line, row.Cells[2])
		}
		out.Rows = append(out.Rows, LegacyRow{row.Cells[0], row.Cells[1], cents})
	}
	return out, nil
}

// LegacyInput is null where the import was skipped.
type LegacyInput struct {
	Rows []LegacyRow `json:"rows"`
}

// LegacyTotals are the old shop's years.
type LegacyTotals struct {
	Note  string   `json:"note"`
	Years []Amount `json:"years"`
	Cents int64    `json:"cents"`
}

func legacyTotals(in LegacyInput) (LegacyTotals, error) {
	if in.Rows == nil {
		return LegacyTotals{}, durable.Skip("nothing was imported")
	}
	years := map[string]int64{}
	out := LegacyTotals{}
	for _, row := range in.Rows {
		years[row.Year] += row.Cents
		out.Cents += row.Cents
	}
	out.Years = byName(years)
	out.Note = fmt.Sprintf("%s in %d years", euros(out.Cents), len(out.Years))
	return out, nil
}

// note counts things, and those that were rejected.
func note(n int, thing string, rejected int) string {
	text := plural(n, thing)
	if rejected > 0 {
		text += fmt.Sprintf(", %d rejected", rejected)
	}
	return text
}

func plural(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprintf("%d %s", n, thing)
}
