package resonate

import (
	"maps"
	"net/url"
	"strconv"
	"strings"

	"perdure/id"
)

// validAddress reports whether a target or a listener is an address: a URI with a scheme. One without a transport is
// admitted and undeliverable.
func validAddress(address string) bool {
	u, err := url.Parse(address)
	return err == nil && u.Scheme != "" && strings.Contains(address, ":")
}

// ids are the rules of ids that depend on the joints: ':' below a root and '.' below that, or '.' for both.
type ids struct {
	// dotted is the compatibility mode of older SDKs: the origin ends at the first ':' or '.', and the tags of the lineage
	// are not checked.
	dotted bool
}

// origin is the part of an id that decides its partition.
func (c ids) origin(s string) string {
	if c.dotted {
		if i := strings.IndexAny(s, ":."); i >= 0 {
			return s[:i]
		}
		return s
	}
	return id.Origin(s)
}

// checkLineage checks the tags that say where an id comes from.
func (c ids) checkLineage(s string, tags map[string]string) *Refusal {
	if c.dotted {
		return nil
	}
	if origin, ok := tags[tagOrigin]; ok {
		switch {
		case strings.Contains(origin, ":"):
			return bad("tag %s must not contain ':'", tagOrigin)
		case s != origin && !strings.HasPrefix(s, origin+":"):
			return bad("id %q must be the tag %s or begin with it and ':'", cut(s), tagOrigin)
		}
	}
	for _, tag := range []string{tagBranch, tagParent} {
		if ancestor, ok := tags[tag]; ok && !below(s, ancestor) {
			return bad("id %q must be the tag %s or an id below it", cut(s), tag)
		}
	}
	if strings.Contains(tags[tagPrefix], ".") {
		return bad("tag %s must not contain '.'", tagPrefix)
	}
	return nil
}

// below reports whether s is an ancestor or an id below it.
func below(s, ancestor string) bool {
	joint := ":"
	if strings.Contains(ancestor, ":") {
		joint = "."
	}
	return s == ancestor || strings.HasPrefix(s, ancestor+joint)
}

// newPromise reads and checks the data of a promise.create.
func (c ids) newPromise(what string, data *object) (NewPromise, *Refusal) {
	p := NewPromise{ID: data.id("id"), TimeoutAt: data.number("timeoutAt", 0, true), Param: data.value("param"), Tags: data.texts("tags")}
	if data.err != nil {
		return p, data.err
	}
	if r := c.checkLineage(p.ID, p.Tags); r != nil {
		return p, r
	}
	target, targeted := p.Tags[tagTarget]
	if targeted && !validAddress(target) {
		return p, bad("Invalid %s address", tagTarget)
	}
	p.Target = target
	p.Timer = p.Tags[tagTimer] == "true"
	p.External = p.Tags[tagExternal] == "true" || p.Tags[tagScope] == "global"
	if delay, ok := p.Tags[tagDelay]; ok {
		until, err := strconv.ParseInt(delay, 10, 64)
		switch {
		case !targeted:
			return p, bad("tag %s needs the tag %s", tagDelay, tagTarget)
		case err != nil || until < 0:
			return p, bad("tag %s must be an integer of at least 0", tagDelay)
		case until >= p.TimeoutAt:
			return p, bad("tag %s must be less than %s.timeoutAt", tagDelay, what)
		}
		p.DelayUntil = until
	}
	return p, nil
}

// settlement reads and checks the data of a promise.settle.
func settlement(data *object) (Settlement, *Refusal) {
	s := Settlement{ID: data.id("id"), State: data.text("state"), Value: data.value("value")}
	if data.err == nil && s.State != "resolved" && s.State != "rejected" && s.State != "rejected_canceled" {
		data.fail("state", "resolved, rejected or rejected_canceled")
	}
	return s, data.err
}

// stamped returns tags with more of them.
func stamped(tags map[string]string, more map[string]string) map[string]string {
	out := maps.Clone(tags)
	if out == nil {
		out = map[string]string{}
	}
	maps.Copy(out, more)
	return out
}
