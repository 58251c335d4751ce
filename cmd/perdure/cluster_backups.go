package main

import (
	"fmt"
	"strings"
	"time"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/internal/days"
)

// scheduleText is a node's schedule of backups as its settings write it.
func scheduleText(b *perdurev1.BackupSchedule) string {
	text := fmt.Sprintf("every %s at %s", days.Format(time.Duration(b.GetEveryMs())*time.Millisecond), printable(b.GetUrl()))
	if keep := b.GetKeep(); keep > 0 {
		text += fmt.Sprintf(", %d kept", keep)
	}
	return text
}

// backupsOf is the schedule of the node that makes the cluster's backups, or of any node; nil if none has one.
func backupsOf(s *perdurev1.ClusterStatus) (of *perdurev1.BackupSchedule) {
	for _, n := range s.GetNodes() {
		switch b := n.GetBackups(); {
		case b == nil:
		case b.GetLeads():
			return b
		case of == nil:
			of = b
		}
	}
	return of
}

// backupsText says when backups are made and which is the newest; empty if the cluster has no schedule.
func backupsText(s *perdurev1.ClusterStatus) string {
	b := backupsOf(s)
	if b == nil {
		return ""
	}
	parts := []string{scheduleText(b)}
	switch {
	case !b.GetLeads():
		parts = append(parts, "no node says that it makes them")
	case b.GetLastName() == "":
		parts = append(parts, "there is none yet")
	default:
		parts = append(parts, fmt.Sprintf("the newest is %s, %s", printable(b.GetLastName()), bytesText(b.GetLastBytes())))
	}
	if b.GetRunning() {
		parts = append(parts, "one is being made")
	} else if at := b.GetNextMs(); at > 0 {
		parts = append(parts, "the next is due at "+time.UnixMilli(at).UTC().Format(time.RFC3339))
	}
	return strings.Join(parts, "; ")
}

// backupProblem says why backups fail; empty if they do not.
func backupProblem(s *perdurev1.ClusterStatus) string {
	b := backupsOf(s)
	if b.GetFailures() == 0 {
		return ""
	}
	text := fmt.Sprintf("the scheduled backup has failed %s: %s", map[bool]string{true: "once", false: fmt.Sprintf("%d times", b.GetFailures())}[b.GetFailures() == 1],
		sentences(b.GetProblem()))
	if b.GetLastName() != "" {
		text += "; the newest is " + printable(b.GetLastName())
	}
	return text
}

// backupNotes names nodes with another schedule than others, or without one.
func backupNotes(s *perdurev1.ClusterStatus) []string {
	byText := map[string][]string{}
	var order []string
	for _, n := range s.GetNodes() {
		if !n.GetReachable() {
			continue
		}
		text := "none"
		if n.GetBackups() != nil {
			text = scheduleText(n.GetBackups())
		}
		if byText[text] == nil {
			order = append(order, text)
		}
		byText[text] = append(byText[text], orDash(n.GetNodeId()))
	}
	if len(order) < 2 {
		return nil
	}
	for i, text := range order {
		order[i] = text + " on " + listText(byText[text])
	}
	return []string{"the nodes have different schedules of backups: " + strings.Join(order, "; ")}
}
