package chat_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/rewardloop/rewardloop/internal/chat"
	"github.com/rewardloop/rewardloop/internal/outbound"
	"github.com/rewardloop/rewardloop/rewards"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// doerFunc is a function that is an outbound.Doer.
type doerFunc func(ctx context.Context, c *outbound.Call) (*outbound.Answer, error)

func (f doerFunc) Do(ctx context.Context, c *outbound.Call) (*outbound.Answer, error) {
	return f(ctx, c)
}

// answering is an engine that says the same to everything.
func answering(body string) doerFunc {
	return func(_ context.Context, c *outbound.Call) (*outbound.Answer, error) { return give(c, body) }
}

// give is an answer of status 200, checked as an outbound.Doer checks it.
func give(c *outbound.Call, body string) (*outbound.Answer, error) {
	a := &outbound.Answer{Status: http.StatusOK, Body: []byte(body), Attempts: 1}
	if c.Check != nil {
		if err := c.Check(a); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// httpDoer sends calls to one server by a real HTTP client, one attempt each.
type httpDoer struct {
	url    string
	client *http.Client
}

func (d httpDoer) Do(ctx context.Context, c *outbound.Call) (*outbound.Answer, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, d.url+c.Path, bytes.NewReader(c.Body))
	if err != nil {
		return nil, err
	}
	req.Header = c.Header
	resp, err := d.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", rewards.Unavailable, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, c.MaxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", rewards.Unavailable, err)
	}
	return give(c, string(body))
}

// says is a chat completion with a text.
func says(text string) string {
	return fmt.Sprintf(`{"choices":[{"message":{"content":%q},"finish_reason":"stop"}],"usage":{"prompt_tokens":10,"completion_tokens":2}}`, text)
}

func newClient(t *testing.T, cfg chat.Config, d outbound.Doer) *chat.Client {
	t.Helper()
	c, err := chat.New(cfg, d)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// ask is a question at temperature 0.
func ask(parts ...chat.Part) *chat.Request {
	return &chat.Request{Messages: []chat.Message{{Role: chat.User, Parts: parts}}, Temperature: new(float64)}
}
