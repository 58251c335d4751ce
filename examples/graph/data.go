package main

import (
	"embed"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// The files that a run reads.
const (
	ordersFile    = "orders.csv"
	customersFile = "customers.csv"
	productsFile  = "products.csv"
	ratesFile     = "rates.json"
	legacyFile    = "legacy.csv"
	// repairedFile is the user's repair of legacyFile when it turns out to be broken.
	repairedFile = "legacy-repaired.csv"
)

var (
	orderColumns    = []string{"order", "date", "customer", "sku", "quantity", "price", "currency"}
	customerColumns = []string{"customer", "name", "email", "country"}
	productColumns  = []string{"sku", "name", "category"}
	legacyColumns   = []string{"year", "category", "revenue"}
)

//go:embed data/*.csv data/*.json
var dataFiles embed.FS

// copyData copies the example's files into a folder, and does not touch those that exist.
func copyData(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, name := range []string{ordersFile, customersFile, productsFile, ratesFile, legacyFile} {
		if _, err := os.Stat(filepath.Join(dir, name)); !errors.Is(err, fs.ErrNotExist) {
			if err != nil {
				return err
			}
			continue
		}
		if err := copyFile(dir, name, name); err != nil {
			return err
		}
	}
	return nil
}

// repairLegacy replaces the broken file by one that is in order.
func repairLegacy(dir string) error { return copyFile(dir, legacyFile, repairedFile) }

func copyFile(dir, to, from string) error {
	content, err := dataFiles.ReadFile("data/" + from)
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(dir, to), content)
}

// writeFile writes a file whole or not at all; repeating it changes nothing.
func writeFile(path string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".new-*")
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
