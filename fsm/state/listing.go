package state

// ListingOpen is the value of an open execution's listing entry.
func ListingOpen(function string) []byte { return []byte(function) }

// ListingClosed is the value of an ended execution's listing entry.
func ListingClosed(function string, closedMS int64) []byte {
	e := encoder{}
	e.str(function)
	e.i64(closedMS)
	return e.b
}
