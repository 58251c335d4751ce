package boltfile

// placeholder until next edit
func Check(path string) error { return nil }
