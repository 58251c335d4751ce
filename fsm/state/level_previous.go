//go:build perdure_previous

package state

// FeatureLevel is the level below the newest command kinds, inherit_leases and raise_level. A build with this
// tag is the previous version in tests of rolling upgrades. A new command kind moves it up to the level below
// its own.
const FeatureLevel = LevelLeases - 1
