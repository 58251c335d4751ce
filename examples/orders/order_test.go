package main

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// sample is an order that can be shipped: two lines, 2 x 10.00 and 1 x 3.50.
func sample() Order {
	return Order{
		Number:    7,
		Customer:  Customer{Name: "Åsa Lindqvist", Email: "asa@example.org"},
		Address:   Address{Street: "Bergsgatan 3", Postcode: "211 42", City: "Malmö", Country: "SE"},
		Currency:  "EUR",
		Payment:   "tok_visa_1",
		Warehouse: "BER1",
		Lines:     []Line{{SKU: "MUG", Quantity: 2, UnitPrice: 1000}, {SKU: "TIN", Quantity: 1, UnitPrice: 350}},
	}
}

var sampleStock = Stock{"MUG": 10, "TIN": 10, "GONE": 0}

func TestExpect(t *testing.T) {
	gone := Line{SKU: "GONE", Quantity: 1, UnitPrice: 100}
	for _, c := range []struct {
		name   string
		change func(o *Order)
		want   Expectation
	}{
		{"good", func(o *Order) {}, Expectation{Status: StatusShipped, Charged: 2350, Steps: map[string]int{
			StepReserve: 2, StepCharge: 1, StepPick: 1, StepBook: 1, StepHandOver: 1, StepConfirm: 1}}},
		{"flaky gateway", func(o *Order) { o.Payment = "tok_flaky_1" }, Expectation{Status: StatusShipped, Charged: 2350, Steps: map[string]int{
			StepReserve: 2, StepCharge: 1, StepPick: 1, StepBook: 1, StepHandOver: 1, StepConfirm: 1}}},
		{"first line sold out", func(o *Order) { o.Lines = append([]Line{gone}, o.Lines...) },
			Expectation{Status: StatusFailed, Reason: ReasonSoldOut, Steps: map[string]int{StepApologize: 1}}},
		{"last line sold out", func(o *Order) { o.Lines = append(o.Lines, gone) },
			Expectation{Status: StatusFailed, Reason: ReasonSoldOut, Steps: map[string]int{StepReserve: 2, StepRelease: 2, StepApologize: 1}}},
		{"more than there is", func(o *Order) { o.Lines[1].Quantity = 11 },
			Expectation{Status: StatusFailed, Reason: ReasonSoldOut, Steps: map[string]int{StepReserve: 1, StepRelease: 1, StepApologize: 1}}},
		{"declined", func(o *Order) { o.Payment = "tok_declined_1" },
			Expectation{Status: StatusFailed, Reason: ReasonDeclined, Steps: map[string]int{StepReserve: 2, StepRelease: 2, StepApologize: 1}}},
		{"never picked", func(o *Order) { o.Warehouse = "HAM2" },
			Expectation{Status: StatusFailed, Reason: ReasonSilent, Charged: 2350, Refunded: 2350, Steps: map[string]int{
				StepReserve: 2, StepRelease: 2, StepCharge: 1, StepRefund: 1, StepPick: 1, StepApologize: 1}}},
		{"no such street", func(o *Order) { o.Address.Street = "PO Box 12" },
			Expectation{Status: StatusFailed, Reason: ReasonAddress, Charged: 2350, Refunded: 2350, Steps: map[string]int{
				StepReserve: 2, StepRelease: 2, StepCharge: 1, StepRefund: 1, StepPick: 1, StepApologize: 1}}},
		{"everything at once", func(o *Order) {
			o.Lines, o.Payment, o.Warehouse, o.Address.Street = append(o.Lines, gone), "tok_declined_1", "HAM2", "PO Box 1"
		}, Expectation{Status: StatusFailed, Reason: ReasonSoldOut, Steps: map[string]int{StepReserve: 2, StepRelease: 2, StepApologize: 1}}},
		{"declined before the rest", func(o *Order) { o.Payment, o.Warehouse, o.Address.Street = "tok_declined_1", "HAM2", "PO Box 1" },
			Expectation{Status: StatusFailed, Reason: ReasonDeclined, Steps: map[string]int{StepReserve: 2, StepRelease: 2, StepApologize: 1}}},
		{"never picked before the carrier", func(o *Order) { o.Warehouse, o.Address.Street = "HAM2", "PO Box 1" },
			Expectation{Status: StatusFailed, Reason: ReasonSilent, Charged: 2350, Refunded: 2350, Steps: map[string]int{
				StepReserve: 2, StepRelease: 2, StepCharge: 1, StepRefund: 1, StepPick: 1, StepApologize: 1}}},
	} {
		o := sample()
		c.change(&o)
		got := Expect(o, sampleStock)
		if got.Status != c.want.Status || got.Reason != c.want.Reason || got.Charged != c.want.Charged || got.Refunded != c.want.Refunded ||
			!maps.Equal(got.Steps, c.want.Steps) {
			t.Errorf("%s:\n got %+v\nwant %+v", c.name, got, c.want)
		}
	}
}

// TestBook checks the orders that come with the example: all that can happen does, and early, so that a
// short run shows it too.
func TestBook(t *testing.T) {
	book, err := LoadBook("", 0)
	if err != nil {
		t.Fatal(err)
	}
	if len(book.Orders) != 300 {
		t.Errorf("%d orders", len(book.Orders))
	}
	for _, n := range []int{30, 300} {
		part, err := LoadBook("", n)
		if err != nil {
			t.Fatal(err)
		}
		count := map[string]int{}
		for _, o := range part.Orders {
			e := Expect(o, part.Stock)
			count[outcome(e.Status, e.Reason)]++
			if strings.HasPrefix(o.Payment, flakyPrefix) {
				count["flaky"]++
			}
		}
		for _, what := range append([]string{StatusShipped, "flaky"}, failedFor(Reasons)...) {
			if count[what] == 0 {
				t.Errorf("none of the first %d orders: %s", n, what)
			}
		}
	}
}

func failedFor(reasons []string) (out []string) {
	for _, r := range reasons {
		out = append(out, outcome(StatusFailed, r))
	}
	return out
}

func TestLoadBookRefuses(t *testing.T) {
	for _, c := range []struct{ file, says string }{
		{`{"stock":{},"orders":[]}`, "there are no orders"},
		{`{"stock":{},"ordres":[]}`, `unknown field "ordres"`},
		{`{"stock":{"A":1},"orders":[
			{"number":1,"customer":{"email":"a@example.org"},"currency":"EUR","payment":"tok_1","warehouse":"BER1","lines":[{"sku":"A","quantity":1,"unitPrice":1}]},
			{"number":2,"customer":{"email":"b@example.org"},"currency":"EUR","payment":"tok_2","warehouse":"BER1","lines":[{"sku":"A","quantity":1,"unitPrice":1}]}]}`,
			`stock of "A": 1, but 2 are wanted`},
		{`{"stock":{"A":9},"orders":[
			{"number":1,"customer":{"email":"a@example.org"},"currency":"EUR","payment":"tok 1","warehouse":"BER1","lines":[{"sku":"A","quantity":1,"unitPrice":1}]}]}`,
			`order 1: the payment token is "tok 1", not one word`},
		{`{"stock":{"A":9},"orders":[
			{"number":1,"customer":{"email":"a@example.org"},"currency":"EUR","payment":"tok_1","warehouse":"BER1","lines":[]},
			{"number":1,"customer":{"email":"b@example.org"},"currency":"EUR","payment":"tok_2","warehouse":"BER1","lines":[{"sku":"B","quantity":0,"unitPrice":1}]}]}`,
			"order 1: 0 times \"B\" at 1 cents\norder 1: it has no lines\norder 1: its number is used twice\norder 1: the stock does not know \"B\""},
	} {
		path := filepath.Join(t.TempDir(), "book.json")
		if err := os.WriteFile(path, []byte(c.file), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := LoadBook(path, 0); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("got %v\nwant %s", err, c.says)
		}
	}
}
