// Package grouptest holds what the tests of partition and of its groups share: commands, queries and events, a
// clock that a test moves, a disk whose syncs a test holds back. It owns nothing and promises nothing beyond its
// functions' comments. No program imports it.
package grouptest

import (
	"fmt"
	"strings"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
)

// Namespace is that of all commands here.
const Namespace = "default"

// Commands.

func RequestID(id string) *perdurev1.RequestID { return &perdurev1.RequestID{Id: []byte(id)} }

func StartCmd(request, id, function, input string) *commandv1.Command {
	return &commandv1.Command{Namespace: Namespace, Id: id, Request: RequestID(request), Kind: &commandv1.Command_Start{
		Start: &perdurev1.StartRequest{Id: id, Function: function, Input: []byte(input), AllowUnknownFunction: true}}}
}

func SignalCmd(request, id, name, payload string) *commandv1.Command {
	return &commandv1.Command{Namespace: Namespace, Id: id, Request: RequestID(request), Kind: &commandv1.Command_Signal{
		Signal: &perdurev1.SignalRequest{Id: id, Name: name, Payload: []byte(payload)}}}
}

func CancelCmd(id string, graceMS int64) *commandv1.Command {
	return &commandv1.Command{Namespace: Namespace, Id: id, Kind: &commandv1.Command_Cancel{
		Cancel: &perdurev1.CancelRequest{Id: id, Reason: "no longer wanted", GraceMs: graceMS}}}
}

func TerminateCmd(id string) *commandv1.Command {
	return &commandv1.Command{Namespace: Namespace, Id: id, Kind: &commandv1.Command_Terminate{
		Terminate: &perdurev1.TerminateRequest{Id: id, Reason: "stopped"}}}
}

func PromiseCmd(id string, timeoutMS int64) *commandv1.Command {
	return &commandv1.Command{Namespace: Namespace, Id: id, Kind: &commandv1.Command_CreatePromise{
		CreatePromise: &perdurev1.CreatePromiseRequest{Id: id, TimeoutMs: timeoutMS, Param: []byte("param of " + id)}}}
}

func SettleCmd(id, value string) *commandv1.Command {
	return &commandv1.Command{Namespace: Namespace, Id: id, Kind: &commandv1.Command_SettlePromise{
		SettlePromise: &perdurev1.SettlePromiseRequest{Id: id, State: perdurev1.PromiseState_PROMISE_STATE_RESOLVED, Value: Value(value)}}}
}

func ReleaseCmd(token *perdurev1.TaskToken, problem string) *commandv1.Command {
	return &commandv1.Command{Namespace: token.Namespace, Id: token.Id, Kind: &commandv1.Command_Release{
		Release: &perdurev1.Release{Task: token, Problem: problem}}}
}

func CommitCmd(request string, c *perdurev1.Commit) *commandv1.Command {
	return &commandv1.Command{Namespace: c.Task.Namespace, Id: c.Task.Id, Request: RequestID(request), Kind: &commandv1.Command_Commit{Commit: c}}
}

func TickCmd() *commandv1.Command {
	return &commandv1.Command{Kind: &commandv1.Command_Tick{Tick: &commandv1.Tick{Limit: 100}}}
}

func Value(s string) *perdurev1.Outcome {
	return &perdurev1.Outcome{Result: &perdurev1.Outcome_Value{Value: []byte(s)}}
}

// Queries.

func DescribeQuery(id string) *commandv1.Query {
	return &commandv1.Query{Namespace: Namespace, Id: id, Kind: &commandv1.Query_Describe{Describe: &perdurev1.DescribeRequest{Id: id}}}
}

func ResultQuery(id string) *commandv1.Query {
	return &commandv1.Query{Namespace: Namespace, Id: id, Kind: &commandv1.Query_Result{Result: &perdurev1.ResultRequest{Id: id}}}
}

func JournalQuery(id string) *commandv1.Query {
	return &commandv1.Query{Namespace: Namespace, Id: id, Kind: &commandv1.Query_Journal{Journal: &perdurev1.JournalRequest{Id: id}}}
}

func PromiseQuery(id string) *commandv1.Query {
	return &commandv1.Query{Namespace: Namespace, Id: id, Kind: &commandv1.Query_Promise{Promise: &perdurev1.GetPromiseRequest{Id: id}}}
}

func TaskQuery(token *perdurev1.TaskToken) *commandv1.Query {
	return &commandv1.Query{Namespace: token.Namespace, Id: token.Id, Kind: &commandv1.Query_Task{
		Task: &commandv1.TaskQuery{Incarnation: token.Incarnation, Version: token.Version}}}
}

// Events.

func StepEvents(promise, name, result string) []*perdurev1.Event {
	return []*perdurev1.Event{
		{Kind: &perdurev1.Event_InvokeScheduled{InvokeScheduled: &perdurev1.InvokeScheduled{
			PromiseId: promise, Kind: perdurev1.InvokeKind_INVOKE_KIND_STEP, FunctionName: name}}},
		{Kind: &perdurev1.Event_InvokeStarted{InvokeStarted: &perdurev1.InvokeStarted{PromiseId: promise, Attempt: 1}}},
		{Kind: &perdurev1.Event_InvokeCompleted{InvokeCompleted: &perdurev1.InvokeCompleted{PromiseId: promise, Attempt: 1, Result: Value(result)}}},
	}
}

func ChildEvent(promise, function, input string) *perdurev1.Event {
	return &perdurev1.Event{Kind: &perdurev1.Event_InvokeScheduled{InvokeScheduled: &perdurev1.InvokeScheduled{
		PromiseId: promise, Kind: perdurev1.InvokeKind_INVOKE_KIND_FUNCTION, FunctionName: function, Input: []byte(input)}}}
}

func TimerEvent(promise string, ms int64) *perdurev1.Event {
	return &perdurev1.Event{Kind: &perdurev1.Event_TimerScheduled{TimerScheduled: &perdurev1.TimerScheduled{PromiseId: promise, DurationMs: ms}}}
}

func AwaitEvent(kind perdurev1.AwaitKind, signal string, on ...string) *perdurev1.Event {
	return &perdurev1.Event{Kind: &perdurev1.Event_ExecutionAwaiting{ExecutionAwaiting: &perdurev1.ExecutionAwaiting{
		Kind: kind, SignalName: signal, WaitingOn: on}}}
}

func ReturnEvent(result string) *perdurev1.Event {
	return &perdurev1.Event{Kind: &perdurev1.Event_ExecutionCompleted{ExecutionCompleted: &perdurev1.ExecutionCompleted{Result: []byte(result)}}}
}

// CallCmd submits a graph of calls: their attempts are of the server's own function $http.
func CallCmd(id string, calls ...string) *commandv1.Command {
	g := &perdurev1.Graph{}
	for _, name := range calls {
		g.Nodes = append(g.Nodes, &perdurev1.GraphNode{Id: name, Kind: &perdurev1.GraphNode_Http{Http: &perdurev1.HttpNode{Url: "http://service"}}})
	}
	return &commandv1.Command{Namespace: Namespace, Id: id, Request: &perdurev1.RequestID{Id: []byte("submit-" + id)},
		Kind: &commandv1.Command_SubmitGraph{SubmitGraph: &perdurev1.SubmitGraphRequest{Id: id, Graph: g}}}
}

// ChildID is the id of the n-th operation of an execution.
func ChildID(id string, n uint32) string {
	joint := ":"
	if strings.Contains(id, ":") {
		joint = "."
	}
	return fmt.Sprintf("%s%s%d", id, joint, n)
}
