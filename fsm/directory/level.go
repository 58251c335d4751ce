package directory

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
)

// UnannouncedLevel is the newest feature level of programs that announce none.
const UnannouncedLevel = uint64(5)

func levelRefused(format string, args ...any) error {
	return api.Errorf(perdurev1.Reason_REASON_FEATURE_LEVEL, format, args...)
}

// raise raises the cluster's feature level if every member has announced that it knows the new one. A level
// that the cluster has already changes nothing.
func raise(d *commandv1.Directory, level uint64) error {
	if d == nil {
		return refused("there is no directory yet")
	}
	if level <= d.FeatureLevel {
		return nil
	}
	if why := Lacking(d.Members, level); why != "" {
		return levelRefused("feature level %d is not known to all members of cluster %s: %s", level, d.ClusterId, why)
	}
	d.FeatureLevel = level
	return nil
}

// Lacking returns the members that do not know a feature level or have announced none; empty if all know it.
func Lacking(members []*commandv1.DirectoryMember, level uint64) string {
	var lacking []string
	for _, m := range members {
		switch {
		case m.FeatureLevel == 0:
			lacking = append(lacking, fmt.Sprintf("node %s has not been heard from", m.NodeId))
		case m.FeatureLevel < level:
			lacking = append(lacking, fmt.Sprintf("node %s knows up to %d", m.NodeId, m.FeatureLevel))
		}
	}
	return strings.Join(lacking, ", ")
}

// CommonLevel is the newest feature level that every member has announced to know; 0 if one has announced none.
func CommonLevel(members []*commandv1.DirectoryMember) uint64 {
	if len(members) == 0 {
		return 0
	}
	level := members[0].FeatureLevel
	for _, m := range members[1:] {
		level = min(level, m.FeatureLevel)
	}
	return level
}

// onlyLevels reports whether two directories differ in feature levels at most. Programs that know no levels in the
// directory count no change then, and epochs must not differ between replicas.
func onlyLevels(was, is *commandv1.Directory) bool {
	was = proto.CloneOf(was)
	was.FeatureLevel = is.FeatureLevel
	for i, m := range was.Members {
		if i < len(is.Members) {
			m.FeatureLevel = is.Members[i].FeatureLevel
		}
	}
	return proto.Equal(was, is)
}
