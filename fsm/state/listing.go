package state

// ListingOpen and ListingClosed are what stands under an execution's place in the listing.
func ListingOpen(function string) []byte { return []byte(function) }

// ListingClosed is the same for an execution that has ended.
func ListingClosed(function string, closedMS int64) []byte {
	e := encoder{}
	e.str(function)
	e.i64(closedMS)
	return e.b
}
