package durable_test

import (
	"context"
	"fmt"
	"time"

	"perdure/durable"
)

// A function that asks two services at once and takes the first answer, but waits no longer than a second.
func ExampleSelect() {
	ask := func(service string) func(context.Context) (string, error) {
		return func(context.Context) (string, error) { return service + " answers", nil }
	}
	fastest := durable.NewFunction("fastest", func(ctx durable.Context, _ string) (answer string, err error) {
		a, err := durable.GoStep(ctx, "ask a", ask("a"), durable.WithTotalTimeout(time.Minute))
		if err != nil {
			return "", err
		}
		b, err := durable.GoStep(ctx, "ask b", ask("b"), durable.WithNonRetryable("bad_request"))
		if err != nil {
			return "", err
		}
		late, err := durable.After(ctx, time.Second)
		if err != nil {
			return "", err
		}
		take := func(text string, err error) error { answer = text; return err }
		err = durable.Select(ctx, durable.On(a, take), durable.On(b, take), durable.On(late, func(struct{}, error) error {
			return &durable.Error{Type: "late", Message: "no service answered"}
		}))
		return answer, err
	})
	fmt.Println(fastest.Name())
	// Output: fastest
}
