package fsm

import pebblebloom "github.com/cockroachdb/pebble/v2/bloom"

// bloom answers most reads of keys that are not there (is this id taken?) without touching a block: 10
// bits a key, about 1 % wrong.
var bloom = pebblebloom.FilterPolicy(10)
