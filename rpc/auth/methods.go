package auth

import (
	"strings"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/internal/callstream"
)

// scope is where a method acts.
type scope int

const (
	// inNamespace: within the namespace that the request, or the first message of a stream, names.
	inNamespace scope = iota
	// anyNamespace: the method concerns the cluster; a role in one namespace is enough.
	anyNamespace
	// allNamespaces: the method concerns all namespaces.
	allNamespaces
)

// A rule is the role and scope that a method needs.
type rule struct {
	role  Role
	scope scope
}

// methods is the table. A method that is missing here is refused.
var methods = map[string]rule{
	perdurev1.Executions_Start_FullMethodName:     {Write, inNamespace},
	perdurev1.Executions_Result_FullMethodName:    {Read, inNamespace},
	perdurev1.Executions_Describe_FullMethodName:  {Read, inNamespace},
	perdurev1.Executions_Journal_FullMethodName:   {Read, inNamespace},
	perdurev1.Executions_List_FullMethodName:      {Read, inNamespace},
	perdurev1.Executions_Signal_FullMethodName:    {Write, inNamespace},
	perdurev1.Executions_Cancel_FullMethodName:    {Write, inNamespace},
	perdurev1.Executions_Terminate_FullMethodName: {Write, inNamespace},
	perdurev1.Executions_Restart_FullMethodName:   {Write, inNamespace},
	perdurev1.Executions_Purge_FullMethodName:     {Write, inNamespace},

	perdurev1.Histories_Export_FullMethodName: {Read, inNamespace},
	perdurev1.Histories_Import_FullMethodName: {Write, inNamespace},

	perdurev1.Promises_Create_FullMethodName: {Write, inNamespace},
	perdurev1.Promises_Get_FullMethodName:    {Read, inNamespace},
	perdurev1.Promises_Settle_FullMethodName: {Write, inNamespace},
	perdurev1.Promises_Await_FullMethodName:  {Read, inNamespace},
	perdurev1.Promises_Search_FullMethodName: {Read, inNamespace},

	perdurev1.ClientTasks_CreatePromise_FullMethodName:    {Write, inNamespace},
	perdurev1.ClientTasks_SettlePromise_FullMethodName:    {Write, inNamespace},
	perdurev1.ClientTasks_RegisterCallback_FullMethodName: {Write, inNamespace},
	perdurev1.ClientTasks_RegisterListener_FullMethodName: {Write, inNamespace},
	perdurev1.ClientTasks_Create_FullMethodName:           {Write, inNamespace},
	perdurev1.ClientTasks_Get_FullMethodName:              {Read, inNamespace},
	perdurev1.ClientTasks_Acquire_FullMethodName:          {Write, inNamespace},
	perdurev1.ClientTasks_Release_FullMethodName:          {Write, inNamespace},
	perdurev1.ClientTasks_Suspend_FullMethodName:          {Write, inNamespace},
	perdurev1.ClientTasks_Fulfill_FullMethodName:          {Write, inNamespace},
	perdurev1.ClientTasks_Fence_FullMethodName:            {Write, inNamespace},
	perdurev1.ClientTasks_Heartbeat_FullMethodName:        {Write, inNamespace},
	perdurev1.ClientTasks_Halt_FullMethodName:             {Write, inNamespace},
	perdurev1.ClientTasks_Continue_FullMethodName:         {Write, inNamespace},
	perdurev1.ClientTasks_Search_FullMethodName:           {Read, inNamespace},

	perdurev1.Entities_Get_FullMethodName:    {Read, inNamespace},
	perdurev1.Entities_Signal_FullMethodName: {Write, inNamespace},
	perdurev1.Entities_Call_FullMethodName:   {Write, inNamespace},
	perdurev1.Entities_List_FullMethodName:   {Read, inNamespace},

	perdurev1.Tasks_Work_FullMethodName:      {Write, inNamespace},
	perdurev1.Tasks_ListNodes_FullMethodName: {Read, inNamespace},

	perdurev1.Graphs_Submit_FullMethodName:     {Write, inNamespace},
	perdurev1.Graphs_GetStatus_FullMethodName:  {Read, inNamespace},
	perdurev1.Graphs_GetGraph_FullMethodName:   {Read, inNamespace},
	perdurev1.Graphs_GetOutcome_FullMethodName: {Read, inNamespace},
	perdurev1.Graphs_Retry_FullMethodName:      {Write, inNamespace},

	perdurev1.Cluster_GetStatus_FullMethodName:          {Read, anyNamespace},
	perdurev1.Cluster_TransferLeadership_FullMethodName: {Admin, allNamespaces},
	perdurev1.Cluster_RebuildReplica_FullMethodName:     {Admin, allNamespaces},
	perdurev1.Cluster_ForgetQuarantined_FullMethodName:  {Admin, allNamespaces},
	perdurev1.Cluster_Upgrade_FullMethodName:            {Admin, allNamespaces},
	perdurev1.Restores_Import_FullMethodName:            {Admin, allNamespaces},
	perdurev1.Cluster_Verify_FullMethodName:             {Read, allNamespaces}, // it names ids of all of them

	perdurev1.Backups_Cut_FullMethodName:     {Admin, allNamespaces},
	perdurev1.Backups_List_FullMethodName:    {Admin, allNamespaces},
	perdurev1.Backups_Read_FullMethodName:    {Admin, allNamespaces}, // everything that the cluster stores
	perdurev1.Backups_Hash_FullMethodName:    {Admin, allNamespaces},
	perdurev1.Backups_Delta_FullMethodName:   {Admin, allNamespaces},
	perdurev1.Backups_Release_FullMethodName: {Admin, allNamespaces},
}

// ruleOf finds the role that a method needs. open: the method needs no token. known is false for methods that
// the table does not list.
func ruleOf(method string) (r rule, open, known bool) {
	if r, ok := methods[method]; ok {
		return r, false, true
	}
	switch {
	case strings.HasPrefix(method, "/grpc.health."):
		return rule{}, true, true // load balancers have no tokens
	case strings.HasPrefix(method, "/"+callstream.ForClients+"/"):
		return rule{Read, anyNamespace}, false, true // each call on the stream is checked by itself
	case strings.HasPrefix(method, "/grpc.reflection."):
		return rule{Read, anyNamespace}, false, true
	}
	return rule{}, false, false
}

// namespaceOf is the namespace that a request names; ok is false if its kind names none.
func namespaceOf(request any) (namespace string, ok bool) {
	switch r := request.(type) {
	case *perdurev1.WorkRequest:
		// Hello names the namespace of a stream; the tokens in later messages are held against it.
		if r.GetHello() == nil {
			return "", false
		}
		namespace = r.GetHello().Namespace
	case interface{ GetNamespace() string }:
		namespace = r.GetNamespace()
	default:
		return "", false
	}
	if namespace == "" {
		namespace = defaultNamespace
	}
	return namespace, true
}

// defaultNamespace replaces an empty namespace, as in package rpc.
const defaultNamespace = "default"
