//go:build perdure_previous

package state

// FeatureLevel is the level below the newest command kinds. A build with this tag is the previous version in
// tests of rolling upgrades. A new command kind moves it up to the level below its own.
const FeatureLevel = LevelPurges - 1
