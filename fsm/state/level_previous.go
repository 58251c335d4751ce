//go:build perdure_previous

package state

// FeatureLevel is the level below the newest formats and command kinds. A build with this tag is the previous version in
// tests of rolling upgrades. A new level moves it up to the level below.
const FeatureLevel = LevelOpen - 1
