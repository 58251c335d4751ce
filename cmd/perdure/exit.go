package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"perdure/api"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/backup"
	"perdure/client"
	"perdure/fsm"
	"perdure/fsm/state"
	"perdure/partition/identity"
	"perdure/partition/raftlog"
	"perdure/partition/repair"
)

// Exit codes; scripts rely on them.
const (
	exitDone        = 0
	exitFailed      = 1
	exitUsage       = 2
	exitNotFound    = 3
	exitConflict    = 4
	exitUnavailable = 5
)

// usageError is an invalid command line.
type usageError struct {
	message string
	// plain suppresses the hint at --help.
	plain bool
}

func (e *usageError) Error() string { return e.message }

func usagef(format string, args ...any) error {
	return &usageError{message: fmt.Sprintf(format, args...)}
}

// withinError is an error of a request whose time limit was not --timeout.
type withinError struct {
	err    error
	within time.Duration
}

func (e *withinError) Error() string { return e.err.Error() }
func (e *withinError) Unwrap() error { return e.err }

// notFinishedError reports that something had not ended within the time that the caller waited.
type notFinishedError struct {
	what, id string
	waited   time.Duration
	// hint replaces the one for executions.
	hint string
}

func (e *notFinishedError) Error() string {
	if e.waited == 0 {
		return fmt.Sprintf("%s %q has not ended yet", e.what, e.id)
	}
	return fmt.Sprintf("%s %q has not ended within %s", e.what, e.id, e.waited)
}

// conflictError reports a final state that differs from the one that the command asked for.
type conflictError struct {
	id, message string
}

func (e *conflictError) Error() string { return e.message }

// complaint is an error as the command line shows it.
type complaint struct {
	exit    int
	reason  string
	message string
	// ids are the ids concerned, in order: key, value, key, value, …
	ids  []string
	hint string
	// plain suppresses the hint at --help.
	plain bool
}

// complain maps an error to exit code, reason, message, ids and hint. The client's own errors come before the errors
// that they wrap: a refusal that was retried until the time limit means UNAVAILABLE.
func (a *app) complain(ctx context.Context, err error) complaint {
	var (
		usage     *usageError
		execution *client.ExecutionError
		codec     *codecError
		waiting   *notFinishedError
		conflict  *conflictError
		found     *violationsError
		unhealthy *unhealthyError
		compared  *notComparedError
		unaudited *notAuditedError
		missing   *noDirectoryError
		held      *fsm.HeldError
		refusal   *api.Error
	)
	c := complaint{exit: exitFailed, reason: "FAILED", message: err.Error()}
	switch {
	case errors.As(err, &usage):
		c.exit, c.reason, c.plain = exitUsage, "BAD_USAGE", usage.plain
	case errors.As(err, &execution):
		c.reason = "EXECUTION_" + strings.ToUpper(enumName(perdurev1.ExecutionStatus(0).Descriptor(), int32(execution.Status)))
		if execution.Operation != "" {
			c.reason = "OPERATION_FAILED"
		}
		c.ids = []string{"id", execution.ID}
		if strings.Contains(execution.Failure.GetMessage(), "http_forbidden") {
			c.hint = hintHTTPNodes + "; then perdure graph retry " + shellWord(execution.ID) + " continues the run"
		}
	case errors.As(err, &waiting):
		c.exit, c.reason = exitUnavailable, "NOT_FINISHED"
		c.ids = []string{"id", waiting.id}
		switch {
		case waiting.hint != "":
			c.hint = waiting.hint
		case waiting.what == "execution":
			c.hint = "perdure describe " + shellWord(waiting.id) + " shows what it waits for"
		}
	case errors.As(err, &conflict):
		c.exit, c.reason = exitConflict, "CONFLICT"
		c.ids = []string{"id", conflict.id}
	case errors.As(err, &unhealthy):
		c.reason = "UNHEALTHY"
	case ctx.Err() != nil:
		c.reason, c.message = "INTERRUPTED", "interrupted"
		if errors.Is(err, client.ErrOutcomeUnknown) {
			c.message += "; the outcome of the request is unknown"
		}
	case errors.As(err, &codec):
		c.reason = "CODEC"
		c.hint = "perdure --help shows what a codec reads and writes"
	case errors.As(err, &missing):
		c.exit, c.reason = exitNotFound, "NO_DIRECTORY"
		c.ids = []string{"directory", missing.dir}
	case errors.As(err, &held):
		c.exit, c.reason = exitUnavailable, "IN_USE"
		c.ids = []string{"directory", held.Dir}
		c.hint = "stop the node, or verify it while it runs: perdure verify without --data"
	case damagedStore(err):
		c.reason = "CORRUPT"
	case errors.As(err, &found):
		c.reason = "VIOLATIONS"
	case errors.As(err, &unaudited):
		c.exit, c.reason = exitUnavailable, "NOT_AUDITED"
		c.hint = "perdure cluster status shows the nodes; repeat the command when they answer and no other verification runs"
	case errors.As(err, &compared):
		c.exit, c.reason = exitUnavailable, "NOT_COMPARED"
		c.hint = "perdure cluster status shows the replicas; --compare-within gives them more time"
		if len(compared.away) > 0 {
			c.hint = "start " + listText(compared.away) + "; repeat the command when perdure cluster status is healthy"
		}
	case errors.Is(err, client.ErrOutcomeUnknown):
		c.exit, c.reason = exitUnavailable, "OUTCOME_UNKNOWN"
		c.message = "the outcome of the request is unknown: " + lastCause(err)
		c.hint = "check with perdure describe, journal or promise get; start and promise create are safe to repeat with the same id"
	case errors.Is(err, client.ErrUnavailable):
		c.exit, c.reason = exitUnavailable, "UNAVAILABLE"
		allowed := a.timeout
		var other *withinError
		if errors.As(err, &other) {
			allowed = other.within
		}
		c.message = fmt.Sprintf("no node could serve the request within %s at %s: %s", allowed, strings.Join(a.addrs, ", "), lastCause(err))
		if _, answered := api.FromStatus(err); !answered {
			c.hint = a.hintUnreached(lastCause(err))
		}
	default:
		if e, ok := api.FromStatus(err); ok {
			refusal = e
			c.exit, c.reason, c.message = exitOfReason(e.Reason), api.ReasonName(e.Reason), e.Message
			for _, key := range e.Keys() {
				c.ids = append(c.ids, key, e.Meta[key])
			}
			c.hint = a.hint(refusal)
		} else if st, ok := status.FromError(err); ok {
			c.exit, c.message = exitOfCode(st.Code()), fmt.Sprintf("%s (%s)", lastCause(err), st.Code())
			if st.Code() == codes.Unimplemented && strings.HasPrefix(lastCause(err), "unknown ") {
				c.hint = "is this the gRPC address of a Perdure node of this version?"
			}
			if st.Code() == codes.Unauthenticated { // from the client: a node gives a reason
				c.hint = "--tls or --tls-ca secures the connection; --plaintext-token sends the token without TLS"
			}
		}
	}
	c = c.backup(err)
	var hinted *hintedError
	if errors.As(err, &hinted) {
		c.hint = hinted.hint
	}
	return c
}

// backup is the complaint if the error is one of backups.
func (c complaint) backup(err error) complaint {
	var (
		missing   *backup.NotFoundError
		busy      *backup.BusyError
		damaged   *backup.DamagedError
		verified  *damagedBackupError
		store     *backup.StoreError
		unreached *backup.ReplicasError
		history   *damagedHistoryError
	)
	switch {
	case c.reason == "INTERRUPTED":
	case errors.As(err, &history):
		c.exit, c.reason, c.message = exitFailed, "DAMAGED", err.Error()
		c.hint = "export the execution again"
	case errors.As(err, &verified), errors.As(err, &damaged):
		c.exit, c.reason, c.message = exitFailed, "DAMAGED", err.Error()
		c.hint = "perdure backup verify names every damaged file; with --discard the next backup copies them again"
	case errors.As(err, &missing):
		c.exit, c.reason, c.message = exitNotFound, "BACKUP_NOT_FOUND", err.Error()
		c.hint = "perdure backup list shows the backups"
	case errors.As(err, &busy):
		c.exit, c.reason, c.message = exitConflict, "BUSY", err.Error()
		c.hint = "perdure backup list shows it; an interrupted backup is continued by create, or deleted by perdure backup delete"
	case errors.As(err, &store):
		c.exit, c.reason, c.message = exitFailed, "STORE", err.Error()
		c.hint = "nothing that was stored is lost; repeat the command to continue"
	case errors.As(err, &unreached):
		c.exit, c.reason, c.message = exitUnavailable, "UNAVAILABLE", err.Error()
		c.hint = "perdure cluster status shows the nodes; repeat the command to continue"
	}
	return c
}

// damagedStore reports whether the error means a damaged data directory or store.
func damagedStore(err error) bool {
	var (
		bad     *identity.Error
		missing *fsm.MissingError
		foreign *fsm.ForeignError
		damaged *fsm.DamagedError
		lost    *repair.LostError
		noLog   *raftlog.MissingError
		badLog  *raftlog.CorruptError
	)
	return errors.As(err, &bad) || errors.As(err, &missing) || errors.As(err, &foreign) || errors.As(err, &damaged) ||
		errors.As(err, &lost) || errors.As(err, &noLog) || errors.As(err, &badLog)
}

// exitOfReason is the exit code of a refusal.
func exitOfReason(r perdurev1.Reason) int {
	switch r {
	case perdurev1.Reason_REASON_BAD_ID, perdurev1.Reason_REASON_ID_TOO_LONG, perdurev1.Reason_REASON_PAYLOAD_TOO_LARGE,
		perdurev1.Reason_REASON_TOO_MANY_TAGS, perdurev1.Reason_REASON_BAD_REQUEST:
		return exitUsage
	case perdurev1.Reason_REASON_EXECUTION_NOT_FOUND, perdurev1.Reason_REASON_PROMISE_NOT_FOUND,
		perdurev1.Reason_REASON_FUNCTION_UNKNOWN, perdurev1.Reason_REASON_NODE_NOT_FOUND, perdurev1.Reason_REASON_PARTITION_NOT_FOUND,
		perdurev1.Reason_REASON_CHECKPOINT_NOT_FOUND:
		return exitNotFound
	case perdurev1.Reason_REASON_ID_CONFLICT, perdurev1.Reason_REASON_STALE_TASK, perdurev1.Reason_REASON_RULE_BROKEN,
		perdurev1.Reason_REASON_ALREADY_FINISHED, perdurev1.Reason_REASON_NOT_SETTLEABLE, perdurev1.Reason_REASON_MEMBERSHIP_REFUSED,
		perdurev1.Reason_REASON_FEATURE_LEVEL:
		return exitConflict
	}
	if api.Retryable(r) || r == perdurev1.Reason_REASON_QUOTA_EXCEEDED {
		return exitUnavailable
	}
	return exitFailed // CORRUPT, missing credentials or rights, and unknown reasons: a retry does not help
}

// exitOfCode is the exit code of an answer that carries no reason of Perdure's.
func exitOfCode(code codes.Code) int {
	switch code {
	case codes.OK:
		return exitDone
	case codes.InvalidArgument, codes.OutOfRange:
		return exitUsage
	case codes.NotFound:
		return exitNotFound
	case codes.AlreadyExists, codes.Aborted, codes.FailedPrecondition:
		return exitConflict
	case codes.Unavailable, codes.DeadlineExceeded, codes.ResourceExhausted:
		return exitUnavailable
	default:
		return exitFailed
	}
}

// hintHTTPNodes names the flags that allow the calls of graphs.
const hintHTTPNodes = "start every node with --http-nodes, and with --http-hosts and --http-networks that allow the call"

// hint is advice about a refusal; empty if there is none.
func (a *app) hint(e *api.Error) string {
	switch e.Reason {
	case perdurev1.Reason_REASON_BAD_REQUEST:
		if strings.HasPrefix(e.Meta["rule"], "http_") {
			return hintHTTPNodes + "; then perdure graph retry continues the runs that failed with http_forbidden"
		}
	case perdurev1.Reason_REASON_FUNCTION_UNKNOWN:
		if strings.HasPrefix(e.Meta["function"], "@") {
			return "start a worker that has the entity; the id is NAME@KEY"
		}
		return "start a worker that has the function, or pass --allow-unknown-function to let the execution wait for one"
	case perdurev1.Reason_REASON_STALE_TASK:
		return "perdure task get " + shellWord(e.Meta["id"]) + " shows its state, version and holder"
	case perdurev1.Reason_REASON_RULE_BROKEN:
		if e.Meta["rule"] == "awaited_exists" {
			return "perdure promise search shows the promises"
		}
		if strings.Contains(e.Message, "cannot restart: it has not failed") {
			return "perdure restart runs it from the beginning, perdure retry --digest pins an open one to other code"
		}
	case perdurev1.Reason_REASON_ID_CONFLICT:
		return "perdure describe shows what has this id; choose another --id"
	case perdurev1.Reason_REASON_EXECUTION_NOT_FOUND:
		if strings.Contains(e.Meta["id"], "@") {
			return "perdure list shows the executions, perdure entity list the entities"
		}
		if a.namespace == client.DefaultNamespace {
			return "perdure list shows the executions; --namespace names another namespace"
		}
		return "perdure list shows the executions in namespace " + a.namespace
	case perdurev1.Reason_REASON_PROMISE_NOT_FOUND:
		if e.Meta["rule"] == "task_exists" {
			return "perdure task search shows the tasks; a promise has one if it has the tag " + state.TagTarget
		}
		if e.Meta["node"] != "" {
			return "perdure graph status " + shellWord(e.Meta["id"]) + " shows the nodes"
		}
	case perdurev1.Reason_REASON_NODE_NOT_FOUND, perdurev1.Reason_REASON_PARTITION_NOT_FOUND:
		return "perdure cluster status shows the nodes and partitions"
	case perdurev1.Reason_REASON_NOT_SETTLEABLE:
		return "an execution settles its own promise: use perdure signal, cancel or terminate"
	case perdurev1.Reason_REASON_UNAUTHENTICATED:
		return "pass a token with --token-file or " + client.EnvToken
	case perdurev1.Reason_REASON_PERMISSION_DENIED:
		return "use a token with more rights; --namespace names another namespace"
	case perdurev1.Reason_REASON_CORRUPT:
		return "see the node's log; perdure replica rebuild repairs the replica"
	}
	return ""
}

// lastCause is the message of the innermost error, without the text that gRPC adds.
func lastCause(err error) string {
	if e, ok := api.FromStatus(err); ok {
		return e.Message
	}
	var carrier interface{ GRPCStatus() *status.Status }
	if !errors.As(err, &carrier) || carrier.GRPCStatus().Message() == "" {
		return err.Error()
	}
	message := carrier.GRPCStatus().Message()
	if _, quoted, framed := strings.Cut(message, "desc = "); framed {
		if inner, err := strconv.Unquote(quoted); err == nil {
			message = inner
		}
	}
	return strings.TrimPrefix(message, "transport: Error while dialing: ")
}

// report prints the error on stderr and returns the exit code.
func (a *app) report(ctx context.Context, cmd *cobra.Command, err error) int {
	var command *commandError
	if !errors.As(err, &command) {
		err = usagef("%v", err)
	}
	c := a.complain(ctx, err)
	if c.reason == "BAD_USAGE" && c.hint == "" && !c.plain {
		c.hint = "see " + cmd.CommandPath() + " --help"
	}
	if a.json {
		ids := object{}
		for i := 0; i+1 < len(c.ids); i += 2 {
			ids = append(ids, member{c.ids[i], c.ids[i+1]})
		}
		line := appendJSON(nil, object{{"error", object{
			{"exit", c.exit}, {"reason", c.reason}, {"message", c.message}, {"ids", ids}, {"hint", c.hint},
		}}})
		fmt.Fprintf(a.stderr, "%s\n", line)
		return c.exit
	}
	fmt.Fprintf(a.stderr, "perdure: %s\n", sentences(c.message))
	if c.reason != "BAD_USAGE" {
		fmt.Fprintf(a.stderr, "  reason: %s\n", c.reason)
	}
	for i := 0; i+1 < len(c.ids); i += 2 {
		fmt.Fprintf(a.stderr, "  %s: %s\n", c.ids[i], printable(c.ids[i+1]))
	}
	if c.hint != "" {
		fmt.Fprintf(a.stderr, "  hint: %s\n", c.hint)
	}
	return c.exit
}
