package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"perdure/client"
	"perdure/rpc/auth"
)

// maxTokenInput bounds the bytes read from stdin.
const maxTokenInput = 16 << 10

func (a *app) tokenHashCommand() *cobra.Command {
	var (
		random     bool
		name, role string
	)
	cmd := &cobra.Command{
		Use:   "hash",
		Short: "Print a token's row for the tokens file",
		Long: `Read a token from stdin and print its row for the tokens file (node start
--tokens-file). The row holds only the token's hash.

--new generates a token of 32 random bytes instead, and prints it on stderr this once.
--namespace limits the token to one namespace; '*' allows all.`,
		Example: `  perdure token hash --new --name ci --role write >> tokens.yaml
  perdure token hash --name operator --role admin --namespace '*' < token.txt`,
		Args: exactly(),
		RunE: do(func(context.Context, []string) error {
			parsed, err := auth.ParseRole(role)
			if err != nil {
				return usagef("--role: %v", err)
			}
			token, err := a.tokenToHash(random)
			if err != nil {
				return err
			}
			namespace := a.namespace
			if namespace == "" {
				namespace, _ = a.lookup(envNamespace)
			}
			if namespace == "" {
				namespace = client.DefaultNamespace
			}
			row, err := auth.Row(name, token, namespace, parsed)
			if err != nil {
				return usagef("%v", err)
			}
			if a.json {
				out := object{{"name", name}, {"hash", auth.Hash(token)}, {"namespace", namespace}, {"role", role}}
				if random {
					out = append(out, member{"token", token})
				}
				return a.printJSON(out)
			}
			if random {
				fmt.Fprintf(a.stderr, "the token, shown this once: %s\n", token)
			}
			_, err = a.out.WriteString(row)
			return err
		}),
	}
	flags := cmd.Flags()
	flags.BoolVar(&random, "new", false, "make a token instead of reading one from stdin")
	flags.StringVar(&name, "name", "", "`name` of the token in logs, unique in its file (required)")
	flags.StringVar(&role, "role", auth.Read.String(), "`role`: read, write or admin")
	return cmd
}

// tokenToHash is a new token, or the one on stdin.
func (a *app) tokenToHash(random bool) (string, error) {
	if random {
		return auth.NewToken(a.random)
	}
	text, err := io.ReadAll(io.LimitReader(a.stdin, maxTokenInput+1))
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(text))
	switch {
	case len(text) > maxTokenInput:
		return "", usagef("more than %d bytes on stdin; a token is shorter", maxTokenInput)
	case len(token) < auth.MinTokenBytes:
		return "", usagef("a token of %d characters can be guessed; %d at least, or --new", len(token), auth.MinTokenBytes)
	case strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return "", usagef("a token has no spaces, and no characters beyond ASCII")
	}
	return token, nil
}
