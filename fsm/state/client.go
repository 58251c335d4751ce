package state

import (
	"slices"
	"strings"

	"perdure/recovery"
)

// addressMark begins the target of a client's task. No name of a function begins so, and no grant serves such a queue.
const addressMark = "\x00"

// ClientTarget is the target of a task whose workers are told of it at an address.
func ClientTarget(address string) string { return addressMark + address }

// AddressOf returns the address in the target of a client's task; ok is false for the target of an execution or entity.
func AddressOf(target string) (address string, ok bool) {
	return strings.CutPrefix(target, addressMark)
}

// clientTag marks a promise that a client of the recovery protocol has created. Its value is how the client gave the
// parameter. It is the first of the promise's tags, and a user's tags cannot have it.
const clientTag = "\x00client"

// MaxUnblockAgeMS is how long an unblock waits for its delivery.
const MaxUnblockAgeMS = 120_000

// ClientTags are the tags of a client's promise, given those of the client, sorted. The user's have no key with a NUL.
func ClientTags(tags []recovery.Tag, form recovery.DataForm, headers []recovery.Tag) []recovery.Tag {
	value := ""
	if form != recovery.DataBytes || len(headers) > 0 {
		value = string(recovery.AppendTags([]byte{byte(form)}, headers))
	}
	return append([]recovery.Tag{{Key: clientTag, Value: value}}, tags...)
}

// OfClient reports whether a client of the recovery protocol has created a promise.
func OfClient(p recovery.Promise) bool { return len(p.Tags) > 0 && p.Tags[0].Key == clientTag }

// ParamForm returns how the client gave a promise's parameter. The error says that the promise's tag is no such form.
func ParamForm(p recovery.Promise) (form recovery.DataForm, headers []recovery.Tag, err error) {
	if !OfClient(p) || p.Tags[0].Value == "" {
		return recovery.DataBytes, nil, nil
	}
	return recovery.DecodeForm([]byte(p.Tags[0].Value))
}

// UserTags are the tags that the creator of a promise gave.
func UserTags(tags []recovery.Tag) []recovery.Tag {
	if len(tags) > 0 && tags[0].Key == clientTag {
		return tags[1:]
	}
	return tags
}

// The tags of the recovery protocol that have a meaning to the server.
const (
	TagTarget   = "resonate:target"
	TagTimer    = "resonate:timer"
	TagDelay    = "resonate:delay"
	TagExternal = "resonate:external"
	TagScope    = "resonate:scope"
)

// ReservedTag returns the first tag with a key that only the server may give; ok is false if there is none.
func ReservedTag(tags []recovery.Tag) (key string, ok bool) {
	i := slices.IndexFunc(tags, func(t recovery.Tag) bool { return strings.HasPrefix(t.Key, "\x00") })
	if i < 0 {
		return "", false
	}
	return tags[i].Key, true
}

// UnblockID is how the deadline index names an unblock, whose promise and address have no NUL.
func UnblockID(objectID, address string) string { return objectID + "\x00" + address }

// CutUnblockID is the inverse of UnblockID.
func CutUnblockID(s string) (objectID, address string) {
	objectID, address, _ = strings.Cut(s, "\x00")
	return objectID, address
}
