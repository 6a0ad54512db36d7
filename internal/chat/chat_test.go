package chat_test

import (
	"context"
	"encoding/json"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/chat"
	"github.com/rewardloop/rewardloop/internal/outbound"
	"github.com/rewardloop/rewardloop/rewards"
)

func TestARequestIsSentAsTheEngineReadsIt(t *testing.T) {
	t.Parallel()
	var got []byte
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, "/v1/chat/completions", r.URL.Path)
		assert.Equal(t, "application/json", r.Header.Get("Content-Type"))
		got, _ = io.ReadAll(r.Body)
		_, _ = io.WriteString(w, says("hi"))
	}))
	defer srv.Close()
	c := newClient(t, chat.Config{Model: "default"}, httpDoer{srv.URL, srv.Client()})

	reply, err := c.Chat(t.Context(), &chat.Request{
		Messages: []chat.Message{
			{Role: chat.System, Parts: []chat.Part{chat.Text("Be <strict>.")}},
			{Role: chat.User, Parts: []chat.Part{{Image: []byte("\x89PNG"), MIME: "image/png"}, chat.Text("a \"b\"\n\u2028é\xff")}},
		},
		Temperature: new(0.7), TopP: new(0.8), MaxTokens: 4096, Seed: new(int64(7)), Logprobs: false,
		ResponseFormat: &chat.Schema{Name: "verdict", Schema: json.RawMessage(`{"type":"object"}`)},
		Extra:          map[string]any{"chat_template_kwargs": map[string]any{"enable_thinking": false}},
	})
	require.NoError(t, err)
	assert.Equal(t, "hi", reply.Text)
	assert.JSONEq(t, `{
		"model": "default", "temperature": 0.7, "top_p": 0.8, "max_tokens": 4096, "seed": 7,
		"chat_template_kwargs": {"enable_thinking": false},
		"response_format": {"type": "json_schema", "json_schema": {"name": "verdict", "schema": {"type": "object"}, "strict": true}},
		"messages": [
			{"role": "system", "content": "Be <strict>."},
			{"role": "user", "content": [
				{"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw=="}},
				{"type": "text", "text": "a \"b\"\n\u2028é\ufffd"}]}]}`, string(got))
	assert.Contains(t, string(got), "<strict>", "what is not HTML is not escaped for it")
}

func TestLogprobsAreAskedForAndThoseOfTheFirstTokensKept(t *testing.T) {
	t.Parallel()
	var sent map[string]any
	token := `{"token":"Yes","logprob":-0.1,"top_logprobs":[{"token":"Yes","logprob":-0.1},{"token":"No","logprob":-2.5}]}`
	answer := `{"choices":[{"message":{"content":"Yes"},"logprobs":{"content":[` + strings.Repeat(token+",", 99) + token + `]}}]}`
	c := newClient(t, chat.Config{}, doerFunc(func(_ context.Context, call *outbound.Call) (*outbound.Answer, error) {
		if err := json.Unmarshal(call.Body, &sent); err != nil {
			return nil, err
		}
		return give(call, answer)
	}))
	r := ask(chat.Text("?"))
	r.Logprobs, r.TopLogprobs, r.MaxTokens = true, 20, 1
	reply, err := c.Chat(t.Context(), r)
	require.NoError(t, err)
	assert.Equal(t, true, sent["logprobs"])
	assert.InDelta(t, 20, sent["top_logprobs"], 0)
	require.Len(t, reply.Logprobs, 16)
	assert.Equal(t, chat.Token{Text: "Yes", Logprob: -0.1, Top: []chat.Token{
		{Text: "Yes", Logprob: -0.1, Top: nil}, {Text: "No", Logprob: -2.5},
	}}, reply.Logprobs[0])
}

func TestReasoningIsKeptApartFromTheText(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"reasoning_content", "reasoning"} {
		c := newClient(t, chat.Config{}, answering(`{"choices":[{"message":{"content":"4","`+name+`":"Final Score: 1"}}]}`))
		reply, err := c.Chat(t.Context(), ask(chat.Text("?")))
		require.NoError(t, err)
		assert.Equal(t, "4", reply.Text)
		assert.Equal(t, "Final Score: 1", reply.Reasoning)
	}
}

func TestWhatIsNoAnswerIsAFailureAndNeverAReply(t *testing.T) {
	t.Parallel()
	token := func(fields string) string {
		return `{"choices":[{"message":{"content":"Yes"},"logprobs":{"content":[{` + fields + `}]}}]}`
	}
	for name, tt := range map[string]struct {
		answer string
		class  rewards.Class
		says   string
	}{
		"a page of HTML":           {"<html>\n<body>502 Bad Gateway", rewards.Unavailable, `"<html> <body>502 Bad Gateway"`},
		"nothing":                  {"", rewards.Unavailable, "not a chat completion"},
		"null":                     {"null", rewards.Unavailable, "no choices"},
		"a list":                   {"[]", rewards.Unavailable, "not a chat completion"},
		"cut off":                  {says("4")[:30], rewards.Unavailable, "not a chat completion"},
		"two answers":              {says("4") + says("5"), rewards.Unavailable, "not a chat completion"},
		"an error":                 {`{"error":{"message":"out of memory"}}`, rewards.Unavailable, "out of memory"},
		"an error beside choices":  {`{"error":"no","choices":[{"message":{"content":"4"}}]}`, rewards.Unavailable, "with an error"},
		"an error of vLLM":         {`{"object":"error","message":"too long","code":400}`, rewards.Unavailable, "too long"},
		"no choices":               {`{"choices":[]}`, rewards.Unavailable, "no choices"},
		"no message":               {`{"choices":[{"text":"4"}]}`, rewards.Unavailable, "no message"},
		"a text that is a number":  {`{"choices":[{"message":{"content":4}}]}`, rewards.Unavailable, "not a chat completion"},
		"no text":                  {`{"choices":[{"message":{"content":null},"finish_reason":"tool_calls"}]}`, rewards.InvalidScore, "tool_calls"},
		"reasoning and no text":    {`{"choices":[{"message":{"content":null,"reasoning_content":"hm"},"finish_reason":"length"}]}`, rewards.InvalidScore, "raise max_tokens"},
		"a refusal":                {`{"choices":[{"message":{"content":null,"refusal":"I can't"}}]}`, rewards.InvalidScore, "I can't"},
		"no logprobs":              {says("Yes"), rewards.Internal, "no log probabilities"},
		"logprobs of nothing":      {`{"choices":[{"message":{"content":""},"logprobs":{"content":[]}}]}`, rewards.InvalidScore, "no log probabilities"},
		"NaN":                      {token(`"token":"Yes","logprob":NaN`), rewards.Unavailable, "not a chat completion"},
		"-Infinity":                {token(`"token":"Yes","logprob":-Infinity`), rewards.Unavailable, "not a chat completion"},
		"a number beyond float64":  {token(`"token":"Yes","logprob":-1e999`), rewards.Unavailable, "not a chat completion"},
		"a probability above 1":    {token(`"token":"Yes","logprob":0.5`), rewards.Unavailable, "0 or less"},
		"a token without logprob":  {token(`"token":"Yes","logprob":null`), rewards.Unavailable, "0 or less"},
		"a logprob without token":  {token(`"logprob":-1`), rewards.Unavailable, "0 or less"},
		"an alternative without":   {token(`"token":"Yes","logprob":-1,"top_logprobs":[{"token":"No"}]`), rewards.Unavailable, "alternative"},
		"a usage below 0":          {`{"choices":[{"message":{"content":"4"},"logprobs":{"content":[{"token":"4","logprob":0}]}}],"usage":{"prompt_tokens":-1}}`, rewards.Unavailable, "negative"},
		"a tower of lists":         {strings.Repeat("[", 100_000), rewards.Unavailable, "not a chat completion"},
		"a million characters":     {strings.Repeat("é", 1_000_000), rewards.Unavailable, `é"…`},
		"bytes that are no letter": {"\x80\x02}q\x00", rewards.Unavailable, "�"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newClient(t, chat.Config{}, answering(tt.answer))
			r := ask(chat.Text("?"))
			r.Logprobs, r.TopLogprobs = true, 20
			reply, err := c.Chat(t.Context(), r)
			require.Error(t, err)
			assert.Nil(t, reply)
			assert.Equal(t, tt.class, rewards.ClassOf(err), "%v", err)
			assert.Contains(t, err.Error(), tt.says)
			assert.Less(t, len(err.Error()), 1000)
			assert.Zero(t, c.Stats().Entries)
		})
	}
}

func TestARequestThatIsNotRightIsRefusedBeforeItIsSent(t *testing.T) {
	t.Parallel()
	picture := chat.Part{Image: []byte("x"), MIME: "image/png"}
	for name, change := range map[string]func(*chat.Request){
		"no messages":      func(r *chat.Request) { r.Messages = nil },
		"role":             func(r *chat.Request) { r.Messages[0].Role = `user","x":"` },
		"no parts":         func(r *chat.Request) { r.Messages[0].Parts = nil },
		"text and picture": func(r *chat.Request) { r.Messages[0].Parts[0] = chat.Part{Text: "x", Image: picture.Image} },
		"empty picture":    func(r *chat.Request) { r.Messages[0].Parts[0] = chat.Part{Image: []byte{}, MIME: "image/png"} },
		"of type": func(r *chat.Request) {
			r.Messages[0].Parts[0].MIME, r.Messages[0].Parts[0].Image = "text/html", []byte("x")
			r.Messages[0].Parts[0].Text = ""
		},
		"temperature":     func(r *chat.Request) { r.Temperature = new(math.NaN()) },
		"top_p":           func(r *chat.Request) { r.TopP = new(1.5) },
		"max_tokens":      func(r *chat.Request) { r.MaxTokens = -1 },
		"top_logprobs":    func(r *chat.Request) { r.TopLogprobs = 5 },
		`extra field "n"`: func(r *chat.Request) { r.Extra = map[string]any{"n": 2} },
		"parameters":      func(r *chat.Request) { r.Extra = map[string]any{"x": math.Inf(1)} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newClient(t, chat.Config{}, answering(says("4")))
			r := ask(chat.Text("?"))
			change(r)
			_, err := c.Chat(t.Context(), r)
			require.ErrorIs(t, err, rewards.Internal)
			assert.Contains(t, err.Error(), name)
			assert.Zero(t, c.Stats().Requests)
		})
	}
}

func TestAQuestionBeyondTheBoundIsRefused(t *testing.T) {
	t.Parallel()
	c := newClient(t, chat.Config{MaxRequestBytes: 10_000}, answering(says("4")))
	_, err := c.Chat(t.Context(), ask(chat.Part{Image: make([]byte, 8000), MIME: "image/png"}))
	require.ErrorIs(t, err, rewards.BadInput)
	assert.Zero(t, c.Stats().Requests)
}

func TestTheConfigurationNamesAllItsFaults(t *testing.T) {
	t.Parallel()
	_, err := chat.New(chat.Config{CacheBytes: -1, MaxAnswerBytes: -1, PromptPrice: -1, CompletionPrice: math.NaN(), ImageTokens: -1, MaxRequestBytes: -1}, answering(""))
	for _, name := range []string{"cache_bytes", "max_answer_bytes", "max_request_bytes", "image_tokens", "prompt_price", "completion_price"} {
		require.ErrorContains(t, err, name)
	}
	_, err = chat.New(chat.Config{}, nil)
	require.Error(t, err)
}

// limited is an endpoint with a limit of tokens per minute.
type limited struct {
	doerFunc
	spent, booked int
}

func (l *limited) Spent(tokens, booked int) { l.spent, l.booked = tokens, booked }

func TestTokensAndCostAreCountedAndTheEstimateCorrected(t *testing.T) {
	t.Parallel()
	booked := 0
	d := &limited{doerFunc: func(_ context.Context, call *outbound.Call) (*outbound.Answer, error) {
		booked = call.Tokens
		return give(call, `{"choices":[{"message":{"content":"4"}}],"usage":{"prompt_tokens":1500,"completion_tokens":20}}`)
	}}
	c := newClient(t, chat.Config{PromptPrice: 2, CompletionPrice: 10}, d)
	r := ask(chat.Part{Image: []byte("x"), MIME: "image/png"}, chat.Text(strings.Repeat("word", 50)))
	r.MaxTokens = 100
	for range 3 {
		_, err := c.Chat(t.Context(), r)
		require.NoError(t, err)
	}
	assert.Equal(t, 1000+50+100, booked, "a picture, 200 bytes, the longest answer")
	assert.Equal(t, [2]int{1520, 1150}, [2]int{d.spent, d.booked})
	s := c.Stats()
	assert.Equal(t, [2]uint64{1, 2}, [2]uint64{s.Requests, s.Hits}, "what is remembered costs nothing")
	assert.Equal(t, [2]int64{1500, 20}, [2]int64{s.PromptTokens, s.CompletionTokens})
	assert.InDelta(t, 1500*2e-6+20*10e-6, s.Cost, 1e-15)
	assert.Zero(t, s.Unmetered)

	c = newClient(t, chat.Config{}, answering(`{"choices":[{"message":{"content":"4"}}]}`))
	_, err := c.Chat(t.Context(), r)
	require.NoError(t, err)
	assert.EqualValues(t, 1, c.Stats().Unmetered)
}

func FuzzDecode(f *testing.F) {
	f.Add(says("4"))
	f.Add(`{"choices":[{"message":{"content":"Yes"},"logprobs":{"content":[{"token":"Yes","logprob":-1,"top_logprobs":[]}]}}]}`)
	f.Add(`{"error":null,"choices":[{}]}`)
	f.Fuzz(func(t *testing.T, answer string) {
		c := newClient(t, chat.Config{}, answering(answer))
		for _, logprobs := range []bool{false, true} {
			r := ask(chat.Text(strconv.FormatBool(logprobs)))
			r.Logprobs = logprobs
			reply, err := c.Chat(t.Context(), r)
			if err != nil {
				require.Contains(t, []rewards.Class{rewards.Unavailable, rewards.InvalidScore, rewards.Internal}, rewards.ClassOf(err))
				continue
			}
			require.Equal(t, logprobs, len(reply.Logprobs) > 0)
			for _, token := range reply.Logprobs {
				require.False(t, token.Logprob > 0 || math.IsNaN(token.Logprob))
			}
		}
	})
}
