package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
)

// ConvertInput is the input of convert-currency.
type ConvertInput struct {
	Orders   []Order          `json:"orders"`
	Rejected []Reject         `json:"rejected"`
	Rates    map[string]int64 `json:"rates"`
}

// Sales are the orders in euros.
type Sales struct {
	Note  string `json:"note"`
	Sales []Sale `json:"sales"`
	// Rejected are the rows of orders that are not counted, those from before included.
	Rejected []Reject `json:"rejected"`
}

// Sale is an order in euros.
type Sale struct {
	Customer string `json:"customer"`
	SKU      string `json:"sku"`
	Quantity int64  `json:"quantity"`
	Cents    int64  `json:"cents"`
}

// convertCurrency turns each order into whole cents, half a cent rounded up.
func convertCurrency(in ConvertInput) (Sales, error) {
	out := Sales{Sales: []Sale{}, Rejected: in.Rejected}
	var sum int64
	for _, o := range in.Orders {
		rate, known := in.Rates[o.Currency]
		if !known {
			out.Rejected = append(out.Rejected, Reject{ordersFile, o.Line, fmt.Sprintf("there is no rate for %q", o.Currency)})
			continue
		}
		cents := (o.Quantity*o.Price*rate + 500_000) / 1_000_000
		sum += cents
		out.Sales = append(out.Sales, Sale{o.Customer, o.SKU, o.Quantity, cents})
	}
	out.Note = note(len(out.Sales), "sale", len(out.Rejected)-len(in.Rejected)) + ", " + euros(sum)
	return out, nil
}

// SalesInput is the input of both aggregations.
type SalesInput struct {
	Sales []Sale `json:"sales"`
}

// Sum is how often, how much, and for how much.
type Sum struct {
	Orders   int64 `json:"orders"`
	Quantity int64 `json:"quantity"`
	Cents    int64 `json:"cents"`
}

func (s Sum) plus(o Sum) Sum {
	return Sum{s.Orders + o.Orders, s.Quantity + o.Quantity, s.Cents + o.Cents}
}

// CustomerSums are by customer.
type CustomerSums struct {
	Note      string         `json:"note"`
	Customers map[string]Sum `json:"customers"`
}

// ProductSums are by product.
type ProductSums struct {
	Note     string         `json:"note"`
	Products map[string]Sum `json:"products"`
}

func aggregate(sales []Sale, key func(Sale) string) map[string]Sum {
	out := map[string]Sum{}
	for _, s := range sales {
		out[key(s)] = out[key(s)].plus(Sum{1, s.Quantity, s.Cents})
	}
	return out
}

func byCustomer(in SalesInput) (CustomerSums, error) {
	sums := aggregate(in.Sales, func(s Sale) string { return s.Customer })
	return CustomerSums{plural(len(sums), "customer") + " bought", sums}, nil
}

func byProduct(in SalesInput) (ProductSums, error) {
	sums := aggregate(in.Sales, func(s Sale) string { return s.SKU })
	return ProductSums{plural(len(sums), "product") + " sold", sums}, nil
}

// JoinInput is both sums, and the lists of customers and products.
type JoinInput struct {
	ByCustomer map[string]Sum      `json:"byCustomer"`
	ByProduct  map[string]Sum      `json:"byProduct"`
	Customers  map[string]Customer `json:"customers"`
	Products   map[string]Product  `json:"products"`
}

// Summary is the content of the report.
type Summary struct {
	Note       string   `json:"note"`
	Orders     int64    `json:"orders"`
	Cents      int64    `json:"cents"`
	Countries  []Amount `json:"countries"`
	Categories []Amount `json:"categories"`
	Best       []Buyer  `json:"best"`
	// Unknown are customers and products of orders that no list has, or only in a rejected row. Their sales count.
	Unknown []string `json:"unknown"`
}

// Amount is a sum by name.
type Amount struct {
	Name  string `json:"name"`
	Cents int64  `json:"cents"`
}

// Buyer is a customer with what was bought.
type Buyer struct {
	ID     string `json:"id"`
	Name   string `json:"name"`
	Orders int64  `json:"orders"`
	Cents  int64  `json:"cents"`
}

const (
	unknown = "(unknown)"
	maxBest = 5
)

// join combines both aggregations, which must have the same total.
func join(in JoinInput) (Summary, error) {
	out := Summary{Best: []Buyer{}, Unknown: []string{}}
	countries, categories := map[string]int64{}, map[string]int64{}
	var left, right Sum
	for _, id := range slices.Sorted(maps.Keys(in.ByCustomer)) {
		sum := in.ByCustomer[id]
		c, known := in.Customers[id]
		if !known {
			c = Customer{Name: unknown, Country: unknown}
			out.Unknown = append(out.Unknown, id)
		}
		countries[c.Country] += sum.Cents
		out.Best = append(out.Best, Buyer{id, c.Name, sum.Orders, sum.Cents})
		left = left.plus(sum)
	}
	for _, sku := range slices.Sorted(maps.Keys(in.ByProduct)) {
		p, known := in.Products[sku]
		if !known {
			p.Category = unknown
			out.Unknown = append(out.Unknown, sku)
		}
		categories[p.Category] += in.ByProduct[sku].Cents
		right = right.plus(in.ByProduct[sku])
	}
	if left != right {
		return Summary{}, final(typeSums, "by customer %+v, by product %+v", left, right)
	}
	slices.SortStableFunc(out.Best, func(a, b Buyer) int { return cmp.Compare(b.Cents, a.Cents) })
	out.Best = out.Best[:min(maxBest, len(out.Best))]
	out.Orders, out.Cents = left.Orders, left.Cents
	out.Countries, out.Categories = byAmount(countries), byAmount(categories)
	out.Note = fmt.Sprintf("%s from %s", euros(out.Cents), plural(int(out.Orders), "order"))
	return out, nil
}

// byName lists amounts by their names, byAmount the greatest first.
func byName(sums map[string]int64) []Amount {
	out := []Amount{}
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		out = append(out, Amount{name, sums[name]})
	}
	return out
}

func byAmount(sums map[string]int64) []Amount {
	out := byName(sums)
	slices.SortStableFunc(out, func(a, b Amount) int { return cmp.Compare(b.Cents, a.Cents) })
	return out
}

// euros writes cents as people do.
func euros(cents int64) string {
	whole := strconv.FormatInt(cents/100, 10)
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	return fmt.Sprintf("%s.%02d EUR", whole, cents%100)
}
