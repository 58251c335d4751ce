package main

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"unicode"
)

// Order is one order as the shop's web page took it. It is the input of its execution.
type Order struct {
	Number int `json:"number"`
	// Run is the run that the order is of, where there can be several (see Claim). It is not in the book.
	Run      string   `json:"run,omitempty"`
	Customer Customer `json:"customer"`
	Address  Address  `json:"address"`
	Currency string   `json:"currency"`
	// Payment is the token under which the payment gateway keeps the customer's card.
	Payment string `json:"payment"`
	// Warehouse is the code of the warehouse that has the goods.
	Warehouse string `json:"warehouse"`
	Lines     []Line `json:"lines"`
}

// Customer is the person who ordered.
type Customer struct {
	Name  string `json:"name"`
	Email string `json:"email"`
}

// Address is the destination of the parcel.
type Address struct {
	Street   string `json:"street"`
	Postcode string `json:"postcode"`
	City     string `json:"city"`
	Country  string `json:"country"`
}

// Line is one product of an order. UnitPrice is in cents of the order's currency.
type Line struct {
	SKU       string `json:"sku"`
	Quantity  int    `json:"quantity"`
	UnitPrice int64  `json:"unitPrice"`
}

// ID is the id of the order's execution: starting the same order twice is starting it once.
func (o Order) ID() string {
	if o.Run == "" {
		return fmt.Sprintf("order-%d", o.Number)
	}
	return fmt.Sprintf("order-%d-%s", o.Number, o.Run)
}

// Total is the price of the order, in cents.
func (o Order) Total() int64 {
	var sum int64
	for _, l := range o.Lines {
		sum += int64(l.Quantity) * l.UnitPrice
	}
	return sum
}

// Result is the end of an order. It is the result of its execution; an order that cannot be fulfilled is an
// ordinary end, not a failed execution.
type Result struct {
	Order  string `json:"order"`
	Status string `json:"status"`           // StatusShipped or StatusFailed
	Reason string `json:"reason,omitempty"` // why it failed: one of the Reasons
	// Charged and Refunded are in cents of Currency.
	Currency string `json:"currency"`
	Charged  int64  `json:"charged"`
	Refunded int64  `json:"refunded"`
	Tracking string `json:"tracking,omitempty"`
}

// Ends of an order, and reasons of a failure.
const (
	StatusShipped = "shipped"
	StatusFailed  = "failed"

	ReasonSoldOut  = "sold out"       // a product is not there
	ReasonDeclined = "card declined"  // the gateway refused the card
	ReasonSilent   = "never picked"   // the warehouse does not answer
	ReasonAddress  = "no such street" // the carrier does not deliver there
)

// Reasons lists why an order can fail, in the order in which an order meets them.
var Reasons = []string{ReasonSoldOut, ReasonDeclined, ReasonSilent, ReasonAddress}

// The rules of the outside world: everything that goes wrong can be read off the order (and the stock).
const (
	declinedPrefix  = "tok_declined_" // cards the gateway refuses
	flakyPrefix     = "tok_flaky_"    // cards whose bank cannot be reached in the first flakyAttempts attempts
	flakyAttempts   = 2
	silentWarehouse = "HAM2" // is closed for stocktaking and never answers
	boxPrefix       = "PO Box"
)

// The steps that an order takes in the outside world.
const (
	StepReserve   = "reserve"        // one line of the order: put its goods aside
	StepCharge    = "charge"         // take the money
	StepPick      = "request-pick"   // ask the warehouse to pick the goods
	StepCall      = "call-warehouse" // no answer in time: ask whether one will come
	StepBook      = "book"           // book the parcel with the carrier
	StepHandOver  = "hand-over"      // give it to the carrier
	StepConfirm   = "confirm"        // e-mail: your parcel is on its way
	StepRelease   = "release"        // undo StepReserve
	StepRefund    = "refund"         // undo StepCharge
	StepApologize = "apologize"      // e-mail: we cannot send it
)

// Stock is how many pieces of each product the shop has.
type Stock map[string]int

// Has says whether the shop can promise a line of an order.
func (s Stock) Has(l Line) bool { return s[l.SKU] >= l.Quantity }

// Expectation is how an order must end, and how many steps of each kind it must have done in the outside
// world by then. Each step counts once, however often it ran. StepCall is not among them: how often the shop
// had to ask depends on when its processes were alive.
type Expectation struct {
	Status, Reason    string
	Charged, Refunded int64
	Steps             map[string]int
}

// Expect derives from the order and the stock alone how the order must end. It does not use the durable
// function. The rules, in the order in which they apply:
//
//  1. A line wants more than the stock has: sold out. The lines before it are released.
//  2. The payment token begins with tok_declined_: card declined. All lines are released.
//  3. The warehouse is HAM2: never picked. The money is refunded and all lines are released.
//  4. The street begins with "PO Box": no such street. Refunded and released as before.
//  5. Otherwise it is shipped, also with a token that begins with tok_flaky_: that only takes longer.
//
// The customer gets one e-mail in every case.
func Expect(o Order, stock Stock) Expectation {
	missing := slices.IndexFunc(o.Lines, func(l Line) bool { return !stock.Has(l) })
	failed := func(reason string, charged int64, steps map[string]int) Expectation {
		steps[StepApologize] = 1
		return Expectation{Status: StatusFailed, Reason: reason, Charged: charged, Refunded: charged, Steps: steps}
	}
	n := len(o.Lines)
	switch {
	case missing == 0:
		return failed(ReasonSoldOut, 0, map[string]int{})
	case missing > 0:
		return failed(ReasonSoldOut, 0, map[string]int{StepReserve: missing, StepRelease: missing})
	case strings.HasPrefix(o.Payment, declinedPrefix):
		return failed(ReasonDeclined, 0, map[string]int{StepReserve: n, StepRelease: n})
	case o.Warehouse == silentWarehouse, strings.HasPrefix(o.Address.Street, boxPrefix):
		reason := ReasonAddress
		if o.Warehouse == silentWarehouse {
			reason = ReasonSilent
		}
		return failed(reason, o.Total(), map[string]int{StepReserve: n, StepRelease: n, StepCharge: 1, StepRefund: 1, StepPick: 1})
	}
	return Expectation{Status: StatusShipped, Charged: o.Total(), Steps: map[string]int{
		StepReserve: n, StepCharge: 1, StepPick: 1, StepBook: 1, StepHandOver: 1, StepConfirm: 1}}
}

// Book is the content of an orders file.
type Book struct {
	Stock  Stock   `json:"stock"`
	Orders []Order `json:"orders"`
}

// SetRun makes the orders those of a run.
func (b Book) SetRun(run string) {
	for i := range b.Orders {
		b.Orders[i].Run = run
	}
}

//go:embed orders.json
var defaultBook []byte

// LoadBook reads an orders file, or the one that comes with the example when path is empty, and keeps the
// first only orders of it (0: all). Its errors name every line that cannot be.
func LoadBook(path string, only int) (Book, error) {
	data, name := defaultBook, "orders.json"
	if path != "" {
		var err error
		if data, err = os.ReadFile(path); err != nil {
			return Book{}, err
		}
		name = path
	}
	var b Book
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&b); err != nil {
		return Book{}, fmt.Errorf("%s: %w", name, err)
	}
	if err := b.validate(); err != nil {
		return Book{}, fmt.Errorf("%s: %w", name, err)
	}
	if only > 0 && only < len(b.Orders) {
		b.Orders = b.Orders[:only]
	}
	return b, nil
}

// validate refuses a book that the example could not check: above all one with a product that some orders
// would get and others not, because then the outcome depends on which order is first.
func (b Book) validate() error {
	var errs []error
	bad := func(o Order, format string, args ...any) {
		errs = append(errs, fmt.Errorf("order %d: %s", o.Number, fmt.Sprintf(format, args...)))
	}
	if len(b.Orders) == 0 {
		return errors.New("there are no orders")
	}
	seen := map[int]bool{}
	wanted := map[string]int{}
	for _, o := range b.Orders {
		if seen[o.Number] {
			bad(o, "its number is used twice")
		}
		seen[o.Number] = true
		if len(o.Lines) == 0 {
			bad(o, "it has no lines")
		}
		for _, l := range o.Lines {
			if _, known := b.Stock[l.SKU]; !known {
				bad(o, "the stock does not know %q", l.SKU)
			}
			if l.Quantity < 1 || l.UnitPrice < 0 {
				bad(o, "%d times %q at %d cents", l.Quantity, l.SKU, l.UnitPrice)
			}
			wanted[l.SKU] += l.Quantity
		}
		for what, word := range map[string]string{"currency": o.Currency, "payment token": o.Payment, "warehouse": o.Warehouse, "e-mail address": o.Customer.Email} {
			if word == "" || strings.ContainsFunc(word, unicode.IsSpace) {
				bad(o, "the %s is %q, not one word", what, word)
			}
		}
	}
	for sku, have := range b.Stock {
		if have != 0 && have < wanted[sku] {
			errs = append(errs, fmt.Errorf("stock of %q: %d, but %d are wanted; who gets them would be chance: have 0, or enough for all", sku, have, wanted[sku]))
		}
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(errs...)
}
