package embed

import "time"

// ReloadEvery makes a node read its certificates and tokens again at an interval.
func ReloadEvery(c *Config, every time.Duration) { c.reloadEvery = every }
