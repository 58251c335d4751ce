//go:build !perdure_previous

package machine

// FeatureLevel is the newest feature level that this program knows.
const FeatureLevel = levelReplies
