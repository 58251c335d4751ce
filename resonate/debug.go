package resonate

import "context"

// debugOperations is the table of the kinds of debug mode.
var debugOperations = map[string]operation{
	"debug.start": startDebug,
	"debug.stop":  stopDebug,
	"debug.reset": resetDebug,
	"debug.tick":  tickDebug,
	"debug.snap":  snapDebug,
}

// startDebug has time stand still but for what requests say.
func startDebug(s *Server, _ context.Context, _ envelope) (int, any, error) {
	s.opts.Sandbox.Stop(true)
	return noData(nil)
}

// stopDebug has time go on by the wall's clock.
func stopDebug(s *Server, _ context.Context, _ envelope) (int, any, error) {
	s.opts.Sandbox.Stop(false)
	return noData(nil)
}

// resetDebug deletes everything.
func resetDebug(s *Server, _ context.Context, _ envelope) (int, any, error) {
	return noData(s.opts.Sandbox.Reset())
}

// tickDebug runs what has expired at a time. Its answer is a list of what was done, which may be empty.
func tickDebug(s *Server, ctx context.Context, e envelope) (int, any, error) {
	data := e.fields()
	at := data.number("time", 0, false)
	switch {
	case data.err != nil:
		return 0, nil, data.err
	case e.debugTime != nil && *e.debugTime != at:
		return 0, nil, bad("data.time %d differs from head.resonate:debug_time %d", at, *e.debugTime)
	}
	if err := s.opts.Sandbox.Sweep(withDebugTime(ctx, at)); err != nil {
		return 0, nil, err
	}
	return statusOK, []any{}, nil
}

// snapDebug shows everything.
func snapDebug(s *Server, ctx context.Context, _ envelope) (int, any, error) {
	snap, err := s.opts.Sandbox.Snap(ctx)
	if err != nil {
		return 0, nil, err
	}
	return statusOK, snap, nil
}
