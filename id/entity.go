package id

import (
	"strconv"
	"strings"
)

// RuleEntity is the form of an entity's id.
const RuleEntity = "entity_is_name_at_key"

// MaxEntityName bounds the name of an entity.
const MaxEntityName = 200

// entityTask and entityCall end the ids of what belongs to an entity. No path ends so: no execution and no promise of a
// user has such an id, and the origin is the entity's.
const (
	entityTask = ":@"
	entityCall = ":@call."
)

// ValidateEntity checks that s is the id of an entity: a root of the form NAME@KEY, neither part empty. The name ends
// at the first '@'. The error is an *Error.
func ValidateEntity(s string) error {
	if err := ValidateRoot(s); err != nil {
		return err
	}
	name, key, found := strings.Cut(s, "@")
	switch {
	case !found || name == "" || key == "":
		return &Error{Rule: RuleEntity, ID: s, Detail: "is not NAME@KEY, which an entity's id is"}
	case len(name) > MaxEntityName:
		return &Error{Rule: RuleEntity, ID: s, Detail: "has a name of " + strconv.Itoa(len(name)) + " bytes, more than " + strconv.Itoa(MaxEntityName)}
	}
	return nil
}

// EntityQueue returns the name under which the tasks of an entity wait for a worker: '@' and the entity's name.
func EntityQueue(entity string) string {
	name, _, _ := strings.Cut(entity, "@")
	return "@" + name
}

// EntityTask returns the id of an entity's task.
func EntityTask(entity string) string { return entity + entityTask }

// EntityOfTask returns the entity that a task is of; ok is false for the task of an execution.
func EntityOfTask(task string) (entity string, ok bool) { return strings.CutSuffix(task, entityTask) }

// EntityCall returns the id of the promise of a client's call to an entity. The request is in hexadecimal digits.
func EntityCall(entity, request string) string { return entity + entityCall + request }

// EntityOfCall returns the entity that a client has called.
func EntityOfCall(call string) (entity string, ok bool) {
	entity, _, ok = strings.Cut(call, entityCall)
	return entity, ok
}
