package main

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the generated files and the pictures again")

// TestData checks that the files in data/ are what generate makes.
func TestData(t *testing.T) {
	for name, want := range generate() {
		path := filepath.Join("data", name)
		if *update {
			if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, []byte(want)) {
			t.Errorf("%s is not what is generated; go test ./examples/graph -run TestData -update writes it", path)
		}
	}
}

// generate makes all files, always the same.
func generate() map[string]string {
	rng := rand.New(rand.NewPCG(2025, 6))
	pick := func(from []string) string { return from[rng.IntN(len(from))] }
	lines := map[string][]string{
		ordersFile:    {strings.Join(orderColumns, ",")},
		customersFile: {strings.Join(customerColumns, ",")},
		productsFile:  {strings.Join(productColumns, ",")},
		legacyFile:    {strings.Join(legacyColumns, ",")},
	}
	add := func(file, format string, args ...any) {
		lines[file] = append(lines[file], fmt.Sprintf(format, args...))
	}

	first := []string{"Alva", "Bruno", "Clara", "Dario", "Edda", "Fabio", "Greta", "Hugo", "Ilse", "Jonas", "Karla", "Lino"}
	last := []string{"Ahlberg", "Berger", "Conti", "Duval", "Ekman", "Fuchs", "Galli", "Huber", "Jansson", "Keller"}
	country := []string{"AT", "CH", "DE", "DE", "FR", "GB", "IT", "SE", "US"}
	currency := map[string]string{"AT": "EUR", "CH": "CHF", "DE": "EUR", "FR": "EUR", "GB": "GBP", "IT": "EUR", "SE": "SEK", "US": "USD"}
	of := map[string]string{} // the currency of each customer
	var customers []string
	for i := range 60 {
		id := fmt.Sprintf("C%03d", i+1)
		name, family, where := pick(first), pick(last), pick(country)
		email := strings.ToLower(name+"."+family) + fmt.Sprintf("%d@mail.example", i+1)
		switch i {
		case 17:
			email = "unknown"
		case 41:
			where = "Sweden"
		}
		add(customersFile, "%s,%s %s,%s,%s", id, name, family, email, where)
		customers = append(customers, id)
		if of[id] = currency[where]; of[id] == "" {
			of[id] = "SEK"
		}
		if i == 29 {
			add(customersFile, "C012,Hugo Duval,hugo.duval@mail.example,FR") // again
		}
	}

	price := map[string]int{} // in hundredths
	var products []string
	for i, p := range []string{"Garden:Spade", "Garden:Rake", "Garden:Hose 20 m", "Garden:Watering can", "Garden:Secateurs", "Garden:Seed tray",
		"Kitchen:Pan 24 cm", "Kitchen:Pan 28 cm", "Kitchen:Chef's knife", "Kitchen:Board", "Kitchen:Whisk", "Kitchen:Scales",
		"Office:Lamp", "Office:Chair", "Office:Desk", "Office:Notebook", "Office:Fountain pen", "Office:Ink",
		"Outdoor:Tent", "Outdoor:Sleeping bag", "Outdoor:Stove", "Outdoor:Lantern", "Outdoor:Rope 30 m", "Outdoor:Map case"} {
		category, name, _ := strings.Cut(p, ":")
		sku := fmt.Sprintf("%s-%02d", strings.ToUpper(category[:2]), i+1)
		price[sku] = 199 + rng.IntN(12000)
		products = append(products, sku)
		if i == 10 {
			name = ""
		}
		add(productsFile, "%s,%s,%s", sku, name, category)
	}
	add(productsFile, "GA-01,Spade,Garden") // again

	// The price of one unit of a currency in euro, to scale prices by.
	scale := map[string]float64{"EUR": 1, "CHF": 0.95, "GBP": 0.85, "SEK": 11.1, "USD": 1.15}
	for i := range 320 {
		id := fmt.Sprintf("A%04d", 1001+i)
		date := fmt.Sprintf("2025-06-%02d", 1+i*30/320)
		customer, sku := pick(customers), pick(products)
		quantity := fmt.Sprint(1 + rng.IntN(4))
		money := of[customer]
		cents := int(float64(price[sku]) * scale[money])
		amount := fmt.Sprintf("%d.%02d", cents/100, cents%100)
		switch i { // what goes wrong
		case 20:
			quantity = "-1"
		case 47:
			quantity = "two"
		case 63:
			amount = "12,50" // a decimal comma: one cell too many
		case 99:
			date = "2025-06-31"
		case 120:
			date = "2025-05-31"
		case 151:
			money = "DEM"
		case 180:
			amount = ""
		case 222:
			id = "A1007"
		case 240:
			customer = "C999"
		case 263:
			sku = "XX-99"
		case 290:
			add(ordersFile, "%s,%s,%s", id, date, customer)
			continue
		case 301:
			quantity = "0"
		case 310:
			money = "ITL"
		}
		add(ordersFile, "%s,%s,%s,%s,%s,%s,%s", id, date, customer, sku, quantity, amount, money)
	}

	for year := 2019; year <= 2023; year++ {
		for _, category := range []string{"Garden", "Kitchen", "Office", "Outdoor"} {
			cents := 2_000_000 + rng.IntN(9_000_000)
			add(legacyFile, "%d,%s,%d.%02d", year, category, cents/100, cents%100)
		}
	}
	out := map[string]string{}
	for name, rows := range lines {
		out[name] = strings.Join(rows, "\n") + "\n"
	}
	out[repairedFile] = out[legacyFile]
	out[legacyFile] = strings.Replace(out[legacyFile], "\n2021,Office,", "\n2021,\"Office,", 1) // a quote that is not closed
	out[ratesFile] = `{
  "base": "EUR",
  "date": "2025-06-30",
  "rates": {
    "CHF": "1.068604",
    "GBP": "1.169044",
    "SEK": "0.089679",
    "USD": "0.853242"
  }
}
`
	return out
}
