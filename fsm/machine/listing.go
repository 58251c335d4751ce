package machine

// listingOpen and listingClosed are what stands under an execution's place in the listing.
func listingOpen(function string) []byte { return []byte(function) }

// listingClosed is the same for an execution that has ended.
func listingClosed(function string, closedMS int64) []byte {
	e := encoder{}
	e.str(function)
	e.i64(closedMS)
	return e.b
}
