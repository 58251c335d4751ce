package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// TableInput is a table.
type TableInput struct {
	Table Table `json:"table"`
}

// OrdersInput is the table of orders, and the month that they must be of.
type OrdersInput struct {
	Table  Table  `json:"table"`
	Period string `json:"period"`
}

// Orders are the good ones.
type Orders struct {
	Note     string   `json:"note"`
	Orders   []Order  `json:"orders"`
	Rejected []Reject `json:"rejected"`
}

// Order is a line of orders.csv that makes sense.
type Order struct {
	Line     int    `json:"line"`
	ID       string `json:"id"`
	Customer string `json:"customer"`
	SKU      string `json:"sku"`
	Quantity int64  `json:"quantity"`
	Price    int64  `json:"price"` // of one, in hundredths of the currency
	Currency string `json:"currency"`
}

func validateOrders(in OrdersInput) (Orders, error) {
	out := Orders{Orders: []Order{}, Rejected: in.Table.Rejected}
	seen := map[string]int{}
	for _, row := range in.Table.Rows {
		o, why := orderOf(row, in.Period)
		if first := seen[o.ID]; why == "" && first > 0 {
			why = fmt.Sprintf("order %s is in line %d already", o.ID, first)
		}
		if why != "" {
			out.Rejected = append(out.Rejected, Reject{in.Table.File, row.Line, why})
			continue
		}
		seen[o.ID] = row.Line
		out.Orders = append(out.Orders, o)
	}
	out.Note = note(len(out.Orders), "order", len(out.Rejected))
	return out, nil
}

// orderOf reads a row, or returns its problem.
func orderOf(row Row, period string) (Order, string) {
	c := row.Cells
	o := Order{Line: row.Line, ID: c[0], Customer: c[2], SKU: c[3], Currency: c[6]}
	quantity, err := strconv.ParseInt(c[4], 10, 32)
	price, ok := decimal(c[5], 2)
	_, badDate := time.Parse(time.DateOnly, c[1])
	switch {
	case o.ID == "" || o.Customer == "" || o.SKU == "":
		return o, "order, customer and sku must not be empty"
	case badDate != nil:
		return o, fmt.Sprintf("%q is no date", c[1])
	case !strings.HasPrefix(c[1], period+"-"):
		return o, fmt.Sprintf("%s is not in %s", c[1], period)
	case err != nil || quantity < 1 || quantity > 10_000:
		return o, fmt.Sprintf("the quantity is %q", c[4])
	case !ok:
		return o, fmt.Sprintf("the price is %q", c[5])
	}
	o.Quantity, o.Price = quantity, price
	return o, ""
}

// Customers are the good ones, by their ids.
type Customers struct {
	Note      string              `json:"note"`
	Customers map[string]Customer `json:"customers"`
	Rejected  []Reject            `json:"rejected"`
}

// Customer is a customer's name and country.
type Customer struct {
	Name    string `json:"name"`
	Country string `json:"country"`
}

func validateCustomers(in TableInput) (Customers, error) {
	out := Customers{Customers: map[string]Customer{}, Rejected: in.Table.Rejected}
	for _, row := range in.Table.Rows {
		c := row.Cells
		_, known := out.Customers[c[0]]
		why := ""
		switch {
		case c[0] == "" || c[1] == "":
			why = "customer and name must not be empty"
		case !strings.Contains(c[2], "@"):
			why = fmt.Sprintf("%q is no e-mail address", c[2])
		case len(c[3]) != 2:
			why = fmt.Sprintf("%q is no country", c[3])
		case known:
			why = fmt.Sprintf("customer %s is there already", c[0])
		}
		if why != "" {
			out.Rejected = append(out.Rejected, Reject{in.Table.File, row.Line, why})
			continue
		}
		out.Customers[c[0]] = Customer{c[1], c[3]}
	}
	out.Note = note(len(out.Customers), "customer", len(out.Rejected))
	return out, nil
}

// Products are the good ones, by their SKUs.
type Products struct {
	Note     string             `json:"note"`
	Products map[string]Product `json:"products"`
	Rejected []Reject           `json:"rejected"`
}

// Product is a product's name and category.
type Product struct {
	Name     string `json:"name"`
	Category string `json:"category"`
}

func validateProducts(in TableInput) (Products, error) {
	out := Products{Products: map[string]Product{}, Rejected: in.Table.Rejected}
	for _, row := range in.Table.Rows {
		c := row.Cells
		_, known := out.Products[c[0]]
		why := ""
		switch {
		case c[0] == "" || c[1] == "" || c[2] == "":
			why = "no cell of a product may be empty"
		case known:
			why = fmt.Sprintf("product %s is there already", c[0])
		}
		if why != "" {
			out.Rejected = append(out.Rejected, Reject{in.Table.File, row.Line, why})
			continue
		}
		out.Products[c[0]] = Product{c[1], c[2]}
	}
	out.Note = note(len(out.Products), "product", len(out.Rejected))
	return out, nil
}
