//go:build !perdure_previous

package state

// FeatureLevel is the newest feature level that this program knows.
const FeatureLevel = LevelOpen
