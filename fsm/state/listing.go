package state

// ListingOpen is the value of an open execution's listing entry.
func ListingOpen(function string) []byte { return AppendListingOpen([]byte{}, function) }

// AppendListingOpen appends what ListingOpen returns.
func AppendListingOpen(b []byte, function string) []byte { return append(b, function...) }

// ListingClosed is the value of an ended execution's listing entry.
func ListingClosed(function string, closedMS int64) []byte {
	return AppendListingClosed(nil, function, closedMS)
}

// AppendListingClosed appends what ListingClosed returns.
func AppendListingClosed(b []byte, function string, closedMS int64) []byte {
	e := encoder{b: b}
	e.str(function)
	e.i64(closedMS)
	return e.b
}

// ReadListingClosed reads what ListingClosed returns.
func ReadListingClosed(b []byte) (function string, closedMS int64, err error) {
	d := decoder{b: b}
	function, closedMS = d.str(), d.i64()
	return function, closedMS, d.end()
}
