package main

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"time"

	perdurev1 "perdure/api/perdure/v1"
)

// Check compares a completed run with the results that follow from the files in data: the state of each node,
// and the report. It computes all of that itself, in one pass and differently from the nodes (fractions
// instead of whole numbers, no intermediate results), and shares no function with them. The branch of the old
// shop must have been skipped if its file is broken, and only then. The answer lists the differences.
func Check(data, out string, in RunInput, status *perdurev1.GraphStatus) ([]string, error) {
	var differences []string
	differ := func(format string, args ...any) { differences = append(differences, fmt.Sprintf(format, args...)) }

	want, err := compute(data, in)
	if err != nil {
		return nil, err
	}
	for _, n := range status.GetNodes() {
		state := "completed"
		if want.legacy == nil && strings.HasPrefix(n.GetId(), "legacy-") {
			state = "skipped"
		}
		if stateOf(n) != state {
			differ("node %s is %s, expected %s", n.GetId(), stateOf(n), state)
		}
	}

	var got ReportInput
	content, err := os.ReadFile(filepath.Join(out, reportJSON))
	if err == nil {
		err = json.Unmarshal(content, &got)
	}
	if err != nil {
		return append(differences, err.Error()), nil
	}
	compare := func(what string, got, want any) {
		if !reflect.DeepEqual(got, want) {
			differ("%s: %v, expected %v", what, got, want)
		}
	}
	amounts := func(list []Amount) map[string]int64 {
		out := map[string]int64{}
		for _, a := range list {
			out[a.Name] = a.Cents
		}
		return out
	}
	compare("orders", got.Summary.Orders, want.orders)
	compare("revenue in cents", got.Summary.Cents, want.cents)
	compare("revenue by country", amounts(got.Summary.Countries), want.countries)
	compare("revenue by category", amounts(got.Summary.Categories), want.categories)
	compare("rejected rows", got.Rejected, want.rejected)
	var legacy map[string]int64
	if got.Legacy != nil {
		legacy = amounts(got.Legacy.Years)
	}
	compare("the old shop's years", legacy, want.legacy)
	for _, c := range got.Summary.Best {
		compare("revenue of "+c.ID, c.Cents, want.customers[c.ID])
	}
	var most int64
	for _, cents := range want.customers {
		most = max(most, cents)
	}
	if best := got.Summary.Best; most > 0 && (len(best) == 0 || best[0].Cents != most) {
		differ("the best customer is not the one with %d cents", most)
	}
	for _, name := range []string{reportMarkdown, reportJSON} {
		written, err1 := os.ReadFile(filepath.Join(out, name))
		kept, err2 := os.ReadFile(filepath.Join(out, archiveFolder, in.Period, name))
		if err := errors.Join(err1, err2); err != nil {
			differ("%v", err)
		} else if string(written) != string(kept) {
			differ("%s is not what was archived", name)
		}
	}
	return differences, nil
}

// figures are the figures of a correct report.
type figures struct {
	orders, cents                               int64
	countries, categories, customers, legacy    map[string]int64
	rejected                                    map[string]int
	customerCountry, productCategory, orderSeen map[string]string
}

// compute reads everything and adds up.
func compute(data string, in RunInput) (*figures, error) {
	f := &figures{countries: map[string]int64{}, categories: map[string]int64{}, customers: map[string]int64{}, rejected: map[string]int{},
		customerCountry: map[string]string{}, productCategory: map[string]string{}, orderSeen: map[string]string{}}
	take := func(name string, columns int, row func(c []string) bool) error {
		file, err := os.Open(filepath.Join(data, name))
		if err != nil {
			return err
		}
		defer file.Close()
		r := csv.NewReader(file)
		r.FieldsPerRecord = -1
		all, err := r.ReadAll()
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if len(all) == 0 || len(all[0]) != columns {
			return fmt.Errorf("%s: its first line does not name %d columns", name, columns)
		}
		for _, c := range all[1:] {
			if len(c) != columns || !row(c) {
				f.rejected[name]++
			}
		}
		return nil
	}
	set := func(m map[string]string, key, value string) bool {
		if _, there := m[key]; there || key == "" {
			return false
		}
		m[key] = value
		return true
	}
	if err := take(in.Customers, 4, func(c []string) bool {
		return c[1] != "" && strings.ContainsRune(c[2], '@') && len(c[3]) == 2 && set(f.customerCountry, c[0], c[3])
	}); err != nil {
		return nil, err
	}
	if err := take(in.Products, 3, func(c []string) bool {
		return c[1] != "" && c[2] != "" && set(f.productCategory, c[0], c[2])
	}); err != nil {
		return nil, err
	}
	var rates struct{ Rates map[string]string }
	content, err := os.ReadFile(filepath.Join(data, in.Rates))
	if err == nil {
		err = json.Unmarshal(content, &rates)
	}
	if err != nil {
		return nil, err
	}
	if err := take(in.Orders, 7, func(c []string) bool { return f.order(c, in.Period, rates.Rates) }); err != nil {
		return nil, err
	}
	legacy := map[string]int64{}
	good := true
	if err := take(in.Legacy, 3, func(c []string) bool {
		x, ok := new(big.Rat).SetString(c[2])
		if ok {
			legacy[c[0]] += wholeCents(x)
		}
		good = good && ok
		return ok
	}); err == nil && good && f.rejected[in.Legacy] == 0 {
		f.legacy = legacy
	}
	delete(f.rejected, in.Legacy) // that file counts as a whole
	return f, nil
}

// order counts one order, or returns why it is none.
func (f *figures) order(c []string, period string, rates map[string]string) bool {
	day, err := time.Parse(time.DateOnly, c[1])
	quantity, err2 := strconv.Atoi(c[4])
	if err != nil || err2 != nil || day.Format("2006-01") != period || quantity < 1 || quantity > 10_000 || c[2] == "" || c[3] == "" {
		return false
	}
	price, ok := new(big.Rat).SetString(c[5])
	if !ok || price.Sign() < 0 {
		return false
	}
	if _, again := f.orderSeen[c[0]]; again || c[0] == "" {
		return false
	}
	f.orderSeen[c[0]] = c[1]
	text := rates[c[6]]
	if c[6] == "EUR" {
		text = "1"
	}
	rate, ok := new(big.Rat).SetString(text)
	if !ok {
		return false
	}
	cents := wholeCents(price.Mul(price.Mul(price, rate), new(big.Rat).SetInt64(int64(quantity))))
	orUnknown := func(name string) string {
		if name == "" {
			return "(unknown)"
		}
		return name
	}
	f.orders++
	f.cents += cents
	f.customers[c[2]] += cents
	f.countries[orUnknown(f.customerCountry[c[2]])] += cents
	f.categories[orUnknown(f.productCategory[c[3]])] += cents
	return true
}

// wholeCents rounds an amount of euros, half a cent up.
func wholeCents(x *big.Rat) int64 {
	x = new(big.Rat).Add(new(big.Rat).Mul(x, big.NewRat(100, 1)), big.NewRat(1, 2))
	return new(big.Int).Div(x.Num(), x.Denom()).Int64()
}
