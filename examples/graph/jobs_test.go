package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/durable"
)

func TestDecimal(t *testing.T) {
	for _, c := range []struct {
		text   string
		places int
		want   int64
		ok     bool
	}{
		{"12.50", 2, 1250, true}, {"12.5", 2, 1250, true}, {"12", 2, 1200, true}, {"0.089679", 6, 89679, true}, {"0", 2, 0, true},
		{"", 2, 0, false}, {"12.", 2, 0, false}, {".5", 2, 0, false}, {"1.234", 2, 0, false}, {"-1", 2, 0, false},
		{"1e3", 2, 0, false}, {"12,50", 2, 0, false}, {"1234567890", 2, 0, false},
	} {
		if got, ok := decimal(c.text, c.places); ok != c.ok || ok && got != c.want {
			t.Errorf("decimal(%q, %d) = %d, %v", c.text, c.places, got, ok)
		}
	}
}

func TestConvert(t *testing.T) {
	got, err := convertCurrency(ConvertInput{
		Orders: []Order{{Quantity: 1, Price: 1, Currency: "HALF"}, {Quantity: 1, Price: 1, Currency: "LESS"},
			{Quantity: 3, Price: 1999, Currency: "EUR"}, {Line: 7, Currency: "XXX"}},
		Rejected: []Reject{{ordersFile, 2, "before"}},
		Rates:    map[string]int64{"EUR": 1_000_000, "HALF": 500_000, "LESS": 499_999},
	})
	if err != nil {
		t.Fatal(err)
	}
	var cents []int64
	for _, s := range got.Sales {
		cents = append(cents, s.Cents)
	}
	if want := []int64{1, 0, 5997}; !slices.Equal(cents, want) {
		t.Errorf("%v cents, expected %v", cents, want)
	}
	if len(got.Rejected) != 2 || got.Rejected[1].Line != 7 {
		t.Errorf("rejected %v", got.Rejected)
	}
}

func TestJoinComparesItsSums(t *testing.T) {
	_, err := join(JoinInput{ByCustomer: map[string]Sum{"C1": {1, 2, 300}}, ByProduct: map[string]Sum{"P1": {1, 2, 301}}})
	var wrong *durable.Error
	if !errors.As(err, &wrong) || wrong.Type != typeSums || !wrong.NonRetryable {
		t.Errorf("sums that differ: %v", err)
	}
}

// TestAgain runs every function that writes a second time: nothing changes. A report that was changed is not
// archived.
func TestAgain(t *testing.T) {
	dir := t.TempDir()
	s := &Shop{out: dir}
	in := ReportInput{Title: "Sales", Period: "2025-06", Summary: Summary{Cents: 1234567, Orders: 2}}
	files, err := s.report(in)
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(dir, reportMarkdown))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(content), "12,345.67 EUR from 2 orders. Approved by somebody.") {
		t.Errorf("the report says:\n%s", content)
	}
	for range 2 {
		again, err := s.report(in)
		if err != nil || !slices.Equal(again.Files, files.Files) {
			t.Fatalf("again: %v, %v", again, err)
		}
		if _, err := s.archive(ArchiveInput{"2025-06", files.Files}); err != nil {
			t.Fatal(err)
		}
	}
	var names []string
	for _, folder := range []string{"", "archive/2025-06"} {
		entries, err := os.ReadDir(filepath.Join(dir, folder))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			names = append(names, e.Name())
		}
	}
	if want := []string{"archive", "report.json", "report.md", "manifest.json", "report.json", "report.md"}; !slices.Equal(names, want) {
		t.Errorf("there are %v, expected %v", names, want)
	}
	if err := os.WriteFile(filepath.Join(dir, reportMarkdown), append(content, '!'), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := s.archive(ArchiveInput{"2025-06", files.Files}); err == nil || !strings.Contains(err.Error(), "was changed") {
		t.Errorf("a changed report is archived: %v", err)
	}
}

func TestFilesStayInTheFolder(t *testing.T) {
	s := &Shop{data: "data", out: t.TempDir()}
	for _, name := range []string{"", "../graph.yaml", "/etc/hostname", "data/orders.csv"} {
		if _, err := s.parseRates(FileInput{name}); err == nil {
			t.Errorf("%q is read", name)
		}
	}
	if _, err := s.archive(ArchiveInput{Period: "../2025"}); err == nil {
		t.Error("a month outside the archive is taken")
	}
}

// TestCheckFindsDifferences plants mistakes into a report that is right.
func TestCheckFindsDifferences(t *testing.T) {
	for _, c := range []struct{ old, new, says string }{
		{"", "", ""},
		{`"cents": 5051670`, `"cents": 5051671`, "revenue in cents"},
		{`"orders": 309`, `"orders": 310`, "orders: 310, expected 309"},
		{`"orders.csv": 11`, `"orders.csv": 12`, "rejected rows"},
		{`"name": "DE"`, `"name": "DK"`, "revenue by country"},
		{`"name": "Office"`, `"name": "Officer"`, "revenue by category"},
		{`"legacy": null`, `"legacy": {"years": [{"name": "2019", "cents": 1}]}`, "the old shop's years"},
		{`"id": "C041"`, `"id": "C001"`, "revenue of C001"},
	} {
		dir := t.TempDir()
		s := &Shop{data: "data", out: dir}
		if err := runByHand(s); err != nil {
			t.Fatal(err)
		}
		if c.old != "" {
			for _, path := range []string{filepath.Join(dir, reportJSON), filepath.Join(dir, archiveFolder, TheMonth.Period, reportJSON)} {
				content, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				if !strings.Contains(string(content), c.old) {
					t.Fatalf("the report does not have %s:\n%s", c.old, content)
				}
				if err := os.WriteFile(path, []byte(strings.Replace(string(content), c.old, c.new, 1)), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		}
		got, err := Check("data", dir, TheMonth, &perdurev1.GraphStatus{Nodes: []*perdurev1.GraphNodeState{
			{Id: nodeReport, Status: completed}, {Id: nodeLegacy, Status: skipped}}})
		if err != nil {
			t.Fatal(err)
		}
		if c.says == "" && len(got) > 0 || c.says != "" && !strings.Contains(strings.Join(got, "\n"), c.says) {
			t.Errorf("with %s for %s: %q", c.new, c.old, got)
		}
	}
	s := &Shop{data: "data", out: t.TempDir()}
	if err := runByHand(s); err != nil {
		t.Fatal(err)
	}
	got, err := Check("data", s.out, TheMonth, &perdurev1.GraphStatus{Nodes: []*perdurev1.GraphNodeState{
		{Id: nodeJoin, Status: failed}, {Id: nodeLegacy, Status: completed}}})
	if err != nil || len(got) != 2 {
		t.Errorf("nodes in the wrong states: %q, %v", got, err)
	}
}

// runByHand runs the functions of the graph one after the other, without a cluster.
func runByHand(s *Shop) error {
	in := TheMonth
	table := func(file string, columns []string) Table {
		t, err := s.parseCSV(ParseInput{file, columns})
		if err != nil {
			panic(err)
		}
		return t
	}
	rates, err := s.parseRates(FileInput{in.Rates})
	if err != nil {
		return err
	}
	orders, _ := validateOrders(OrdersInput{table(in.Orders, orderColumns), in.Period})
	customers, _ := validateCustomers(TableInput{table(in.Customers, customerColumns)})
	products, _ := validateProducts(TableInput{table(in.Products, productColumns)})
	sales, _ := convertCurrency(ConvertInput{orders.Orders, orders.Rejected, rates.Rates})
	customerSums, _ := byCustomer(SalesInput{sales.Sales})
	productSums, _ := byProduct(SalesInput{sales.Sales})
	summary, err := join(JoinInput{customerSums.Customers, productSums.Products, customers.Customers, products.Products})
	if err != nil {
		return err
	}
	rejected, err := s.rejectedRows(RejectedInput{sales.Rejected, customers.Rejected, products.Rejected})
	if err != nil {
		return err
	}
	files, err := s.report(ReportInput{Title: "Sales", Period: in.Period, Summary: summary, Rejected: rejected.Counts, By: "hand"})
	if err != nil {
		return err
	}
	_, err = s.archive(ArchiveInput{in.Period, files.Files})
	return err
}
