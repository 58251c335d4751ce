package fsm

import pebblebloom "github.com/cockroachdb/pebble/v2/bloom"

// bloom answers most reads of absent keys (is this id taken?) without reading a block: 10 bits a key, about 1
// % false positives.
var bloom = pebblebloom.FilterPolicy(10)
