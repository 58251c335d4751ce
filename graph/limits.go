package graph

// The bounds of a graph. Node and edge bounds are those of one graph: a subgraph has its own.
const (
	// MaxNodes bounds the nodes of one graph, those of subgraphs not counted.
	MaxNodes = 10_000
	// MaxEdges bounds its edges.
	MaxEdges = 1_000_000
	// MaxDepth bounds how deep subgraphs nest below the graph that is submitted.
	MaxDepth = 8
	// MaxIDBytes bounds a node's id.
	MaxIDBytes = 128
	// MaxNameBytes bounds the names of functions, signals, inputs and graphs.
	MaxNameBytes = 256
	// MaxInputs bounds the inputs of one node.
	MaxInputs = 1000
	// MaxPathBytes bounds the path of an input.
	MaxPathBytes = 1024
	// MaxPathMembers bounds how deep a path descends.
	MaxPathMembers = 32
	// MaxInputBytes bounds the JSON that a node gets, as any payload.
	MaxInputBytes = 4 << 20
	// MaxResultBytes bounds the result of a run; see SinkOutputs for one that would have more.
	MaxResultBytes = 1 << 20
	// MaxDurationMs bounds a sleep, a time-out and a pause: ten years of 365 days.
	MaxDurationMs = 10 * 365 * 24 * 60 * 60 * 1000
	// MaxAttempts bounds the attempts of one node.
	MaxAttempts = 1000
	// MinFactorPercent and MaxFactorPercent bound how pauses grow.
	MinFactorPercent = 100
	MaxFactorPercent = 1000
	// MaxURLBytes bounds the address of a call.
	MaxURLBytes = 8192
	// MaxMethodBytes bounds the method of a call.
	MaxMethodBytes = 32
	// MaxHeaders bounds the header fields of a call.
	MaxHeaders = 64
	// MaxHeaderBytes bounds one header field, name and value.
	MaxHeaderBytes = 8192
	// MaxProblems bounds the problems that one Error describes.
	MaxProblems = 20
)
