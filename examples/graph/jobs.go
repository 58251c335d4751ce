package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"perdure/durable"
)

// Shop has the functions of the graph's nodes, and the folders that they work in. Each function reads its
// input and files, and its result depends on them alone: it may run twice without harm.
type Shop struct {
	data    string // where the files are that runs read
	out     string // where reports are written
	latency time.Duration
	log     *os.File // a line for each time that a function ran

	ParseCSV          *durable.Function[ParseInput, Table]
	ParseRates        *durable.Function[FileInput, Rates]
	ValidateOrders    *durable.Function[OrdersInput, Orders]
	ValidateCustomers *durable.Function[TableInput, Customers]
	ValidateProducts  *durable.Function[TableInput, Products]
	ConvertCurrency   *durable.Function[ConvertInput, Sales]
	ByCustomer        *durable.Function[SalesInput, CustomerSums]
	ByProduct         *durable.Function[SalesInput, ProductSums]
	Join              *durable.Function[JoinInput, Summary]
	RejectedRows      *durable.Function[RejectedInput, RejectedRows]
	LegacyImport      *durable.Function[FileInput, LegacyRows]
	LegacyTotals      *durable.Function[LegacyInput, LegacyTotals]
	Report            *durable.Function[ReportInput, ReportFiles]
	Archive           *durable.Function[ArchiveInput, Archived]
}

// NewShop makes the functions. Each takes latency longer than it needs, so that a user can watch.
func NewShop(data, out string, latency time.Duration, log *os.File) *Shop {
	s := &Shop{data: data, out: out, latency: latency, log: log}
	s.ParseCSV = job(s, "parse-csv", s.parseCSV)
	s.ParseRates = job(s, "parse-rates", s.parseRates)
	s.ValidateOrders = job(s, "validate-orders", validateOrders)
	s.ValidateCustomers = job(s, "validate-customers", validateCustomers)
	s.ValidateProducts = job(s, "validate-products", validateProducts)
	s.ConvertCurrency = job(s, "convert-currency", convertCurrency)
	s.ByCustomer = job(s, "aggregate-by-customer", byCustomer)
	s.ByProduct = job(s, "aggregate-by-product", byProduct)
	s.Join = job(s, "join", join)
	s.RejectedRows = job(s, "rejected-rows", s.rejectedRows)
	s.LegacyImport = job(s, "legacy-import", s.legacyImport)
	s.LegacyTotals = job(s, "legacy-totals", legacyTotals)
	s.Report = job(s, "report", s.report)
	s.Archive = job(s, "archive", s.archive)
	return s
}

// Register gives a worker all functions.
func (s *Shop) Register(w *durable.Worker) {
	w.Register(s.ParseCSV, s.ParseRates, s.ValidateOrders, s.ValidateCustomers, s.ValidateProducts, s.ConvertCurrency,
		s.ByCustomer, s.ByProduct, s.Join, s.RejectedRows, s.LegacyImport, s.LegacyTotals, s.Report, s.Archive)
}

// job makes a durable function of one step. The step is not retried: the node's own retries are for that.
func job[In, Out any](s *Shop, name string, work func(In) (Out, error)) *durable.Function[In, Out] {
	return durable.NewFunction(name, func(ctx durable.Context, in In) (Out, error) {
		id := durable.Info(ctx).ID
		return durable.Run(ctx, name, func(ctx context.Context) (Out, error) {
			var none Out
			if _, err := fmt.Fprintf(s.log, "%s %s %s\n", time.Now().UTC().Format(time.RFC3339Nano), name, id); err != nil {
				return none, err
			}
			select {
			case <-time.After(s.latency):
			case <-ctx.Done():
				return none, ctx.Err()
			}
			return work(in)
		}, durable.NoRetry())
	})
}

// Reject is a row that is not counted.
type Reject struct {
	File string `json:"file"`
	Line int    `json:"line"`
	Why  string `json:"why"`
}

// Types of failures, as people see them in the status of a run.
const (
	typeFile  = "bad file"
	typeSums  = "sums differ"
	typeInput = "bad input"
)

// failure is an error with a type.
func failure(kind, format string, args ...any) error {
	return &durable.Error{Type: kind, Message: fmt.Sprintf(format, args...)}
}

// final is a failure that no further attempt can avoid.
func final(kind, format string, args ...any) error {
	return &durable.Error{Type: kind, Message: fmt.Sprintf(format, args...), NonRetryable: true}
}

// pathError leaves the folder out of an error: the names of files are the same everywhere.
func pathError(name string, err error) error {
	var p *os.PathError
	if errors.As(err, &p) {
		err = p.Err
	}
	return failure(typeFile, "%s: %v", name, err)
}
