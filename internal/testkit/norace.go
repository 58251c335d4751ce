//go:build !race

package testkit

const slower = 1
