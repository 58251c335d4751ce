package main

import (
	_ "embed"
	"time"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/durable"
	"perdure/graph/source"
)

// graphFile is how messages call the file that is run.
const graphFile = "graph.yaml"

//go:embed graph.yaml
var graphYAML []byte

// Names in the graph that the rest of the example uses.
const (
	nodeRejected = "rejected-rows"
	nodeJoin     = "join"
	nodeLegacy   = "legacy-import"
	nodeTotals   = "legacy-totals"
	nodeApprove  = "approve"
	nodeReport   = "report"
	nodeArchive  = "archive"

	signalApproved = "approved"
)

// LoadGraph reads the graph that comes with the example. In the strict one the run fails with the branch that
// fails.
func LoadGraph(strict bool) (*perdurev1.Graph, error) {
	g, err := source.Parse(graphFile, graphYAML)
	if err != nil {
		return nil, err
	}
	for _, n := range g.GetNodes() {
		if strict && n.GetId() == nodeLegacy {
			n.OnFailure = perdurev1.OnFailure_ON_FAILURE_PROPAGATE
		}
	}
	return g, nil
}

// RunInput is the input of a run: which month, and the names of the files in the folder of data. A run knows
// no folders, so any worker that has the files can do any node.
type RunInput struct {
	Period    string `json:"period"`
	Orders    string `json:"orders"`
	Customers string `json:"customers"`
	Products  string `json:"products"`
	Rates     string `json:"rates"`
	Legacy    string `json:"legacy"`
}

// TheMonth is the month of the example's report.
var TheMonth = RunInput{Period: "2025-06", Orders: ordersFile, Customers: customersFile, Products: productsFile,
	Rates: ratesFile, Legacy: legacyFile}

// BuildGraph is the graph of graph.yaml, written in Go: a test holds the two against each other. An input puts
// its node after the node that it comes from, so what is added as a shape is only what no input says.
func (s *Shop) BuildGraph() *durable.Graph {
	again := func(attempts int, initial time.Duration) durable.NodeOption {
		return durable.NodeRetry(durable.RetryPolicy{MaxAttempts: attempts, Initial: initial, Max: 5 * time.Second, Factor: 2})
	}
	object := durable.Output(durable.JSONObject)
	run := func(name string) durable.Source { return durable.RunInput(name) }
	from := durable.From
	in := durable.Input

	g := durable.NewGraph("monthly report", durable.MaxParallel(4))
	csv := func(id, file string, columns ...string) *durable.Node {
		return g.Function(id, s.ParseCSV, in("file", run(file)), in("columns", durable.Literal(columns)),
			again(3, 200*time.Millisecond), object)
	}
	table := func(n *durable.Node) durable.NodeOption { return in("table", from(n).As(durable.JSONObject)) }

	parseOrders := csv("parse-orders", "orders", orderColumns...)
	parseCustomers := csv("parse-customers", "customers", customerColumns...)
	parseProducts := csv("parse-products", "products", productColumns...)
	parseRates := g.Function("parse-rates", s.ParseRates, in("file", run("rates")), again(3, 200*time.Millisecond), object)

	orders := g.Function("validate-orders", s.ValidateOrders, table(parseOrders), in("period", run("period")), object)
	customers := g.Function("validate-customers", s.ValidateCustomers, table(parseCustomers), object)
	products := g.Function("validate-products", s.ValidateProducts, table(parseProducts), object)

	convert := g.Function("convert-currency", s.ConvertCurrency, in("orders", from(orders, "orders")),
		in("rejected", from(orders, "rejected")), in("rates", from(parseRates, "rates")), object)
	byCustomer := g.Function("aggregate-by-customer", s.ByCustomer, in("sales", from(convert, "sales")), object)
	byProduct := g.Function("aggregate-by-product", s.ByProduct, in("sales", from(convert, "sales")), object)
	join := g.Function(nodeJoin, s.Join, in("byCustomer", from(byCustomer, "customers")), in("byProduct", from(byProduct, "products")),
		in("customers", from(customers, "customers")), in("products", from(products, "products")), object)
	rejected := g.Function(nodeRejected, s.RejectedRows, in("orders", from(convert, "rejected")),
		in("customers", from(customers, "rejected")), in("products", from(products, "rejected")), object)

	legacy := g.Function(nodeLegacy, s.LegacyImport, in("file", run("legacy")),
		again(2, 300*time.Millisecond), durable.SkipOnFailure(), object)
	totals := g.Function(nodeTotals, s.LegacyTotals, in("rows", from(legacy, "rows")), object)

	approve := g.Signal(nodeApprove, signalApproved)
	g.Add(durable.FanIn(approve, join, rejected, totals))

	report := g.Function(nodeReport, s.Report, in("title", durable.Literal("Sales")), in("period", run("period")),
		in("summary", from(join).As(durable.JSONObject)), in("rejected", from(rejected, "counts")),
		in("legacy", from(totals)), in("by", from(approve, "by")), durable.NodeTimeout(time.Minute), object)
	g.Function(nodeArchive, s.Archive, in("period", run("period")), in("files", from(report, "files")),
		durable.NodeTimeout(time.Minute), object)
	return g
}
