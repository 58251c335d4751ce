package state

// The bounds of what a new incarnation takes over from the former one within one command.
const (
	// MaxCarriedSignals and MaxCarriedBytes bound the signals that an execution has not received.
	MaxCarriedSignals = 10_000
	MaxCarriedBytes   = 16 << 20
	// MaxKeptEvents and MaxKeptBytes bound the prefix of the journal that a restart keeps.
	MaxKeptEvents = 20_000
	MaxKeptBytes  = 16 << 20
	// MaxNewChildren bounds the children that a restart starts again.
	MaxNewChildren = 1_000
)
