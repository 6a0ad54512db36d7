package remote_test

import (
	"encoding/base64"
	"encoding/json"
	"math"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/pickle"
	"github.com/rewardloop/rewardloop/rewards"
)

func TestEachPickleProtocolSendsItsRequest(t *testing.T) {
	t.Parallel()
	row := `{"tag":"counting","include":[{"class":"fox","count":2}],"p":0.5}`
	rowValue := dict("tag", "counting", "include", list(dict("class", "fox", "count", int64(2))), "p", 0.5)
	s := sample(t)
	s.Media = append(s.Media, image(t, 9))
	jpeg, second := file(t, "jpeg", s.Media[0], 0), file(t, "jpeg", s.Media[1], 0)
	five := dict("scores", list(0.25), "rewards", list(1.0), "strict_rewards", list(0.0), "group_rewards", dict(), "group_strict_rewards", dict())
	tests := []struct {
		protocol string
		options  options
		truth    string
		answer   *pickle.Dict
		want     *pickle.Dict
	}{
		{"verl_omni_http", nil, `"the truth"`, dict("scores", list(0.25)), dict("images", list(jpeg), "prompts", list("the truth"), "metadata", dict())},
		{"deepgen", nil, `"the truth"`, dict("scores", list(0.25)), dict("images", list(jpeg), "prompts", list("a red fox"), "metadata", dict())},
		{
			"deepgen",
			options{"prompt": "extra_info.caption", "metadata": "extra_info.deep"},
			`1`, dict("scores", list(0.25)),
			dict("images", list(jpeg), "prompts", list("a fox"), "metadata", dict("k", list(int64(1), 2.5))),
		},
		{
			"deepgen",
			options{"source_image": 1},
			`1`, dict("scores", list(0.25)),
			dict("images", dict("source", list(second), "edited", list(jpeg)), "prompts", list("a red fox"), "metadata", dict()),
		},
		{"deqa", nil, `1`, dict("outputs", list(0.25)), dict("images", list(jpeg))},
		{"unified_reward_remote", nil, `1`, dict("outputs", list(0.25)), dict("images", list(jpeg), "prompts", list("a red fox"))},
		{"geneval", options{"only_strict": true}, row, five, dict("images", list(jpeg), "meta_datas", list(rowValue), "only_strict", true)},
		{
			"deepgen_geneval", nil, row, five,
			dict("images", list(jpeg), "prompts", list("a red fox"), "metadata", dict("meta_datas", list(rowValue), "only_strict", false)),
		},
	}
	for _, tt := range tests {
		t.Run(tt.protocol, func(t *testing.T) {
			t.Parallel()
			srv := says(t, pickled(t, tt.answer))
			sc := scorer(t, srv, options{"protocol": tt.protocol}.with(tt.options))
			one := *s
			one.GroundTruth = json.RawMessage(tt.truth)
			score, err := sc.Score(t.Context(), &one)
			require.NoError(t, err)
			assert.InDelta(t, 0.25, score.Value, 0)
			sent := srv.only(t)
			assert.Equal(t, "/", sent.path)
			assert.Equal(t, "application/octet-stream", sent.header.Get("Content-Type"))
			assert.Equal(t, tt.want, unpickle(t, sent.body))
			assert.Equal(t, srv.URL, score.Details["endpoint"])
		})
	}
}

// What the clients themselves wrote, with CPython.
func TestGoldenRequestsAreThoseOfThePythonClients(t *testing.T) {
	t.Parallel()
	for file, protocol := range map[string]string{
		"verl_omni_http.p4.pkl": "verl_omni_http", "flow_grpo_deqa.p4.pkl": "deqa", "flow_grpo_geneval.p4.pkl": "geneval",
		"flow_grpo_unified_np.p4.pkl": "unified_reward_remote",
	} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			want, ok := unpickle(t, golden(t, file)).(*pickle.Dict)
			require.True(t, ok)
			imageList, _ := want.Get("images")
			images, err := pickle.ByteSlices(imageList)
			require.NoError(t, err)
			answer := dict("scores", list(1.0), "outputs", list(1.0), "rewards", list(1.0), "strict_rewards", list(1.0))
			srv := says(t, pickled(t, answer))
			o := options{"protocol": protocol}
			s := &rewards.Sample{ID: "g", Media: []*rewards.Media{encoded(t, rewards.JPEG, images[0])}}
			if prompts, ok := want.Get("prompts"); ok {
				texts, err := pickle.Strings(prompts)
				require.NoError(t, err)
				s.Prompt = texts[0]
				s.GroundTruth, _ = json.Marshal(texts[0])
				setKey(want, "prompts", list(texts[0])) // lists of one, and NumPy's array as a list
			}
			if rows, ok := want.Get("meta_datas"); ok {
				dicts, err := pickle.Dicts(rows)
				require.NoError(t, err)
				row, err := pickle.Plain(dicts[0])
				require.NoError(t, err)
				s.GroundTruth, err = json.Marshal(row)
				require.NoError(t, err)
				setKey(want, "meta_datas", list(dicts[0]))
				strict, _ := want.Get("only_strict")
				o["only_strict"] = strict
			}
			setKey(want, "images", list(images[0]))
			_, err = scorer(t, srv, o).Score(t.Context(), s)
			require.NoError(t, err)
			got, ok := unpickle(t, srv.only(t).body).(*pickle.Dict)
			require.True(t, ok)
			require.Len(t, got.Items, len(want.Items))
			for i, p := range want.Items {
				assert.Equal(t, p.Key, got.Items[i].Key, "keys in the client's order")
				w, err := pickle.Plain(noBytes(p.Value))
				require.NoError(t, err)
				g, err := pickle.Plain(noBytes(got.Items[i].Value))
				require.NoError(t, err)
				assert.Equal(t, w, g, p.Key)
			}
		})
	}
}

func setKey(d *pickle.Dict, key string, v pickle.Value) {
	for i, p := range d.Items {
		if p.Key == key {
			d.Items[i].Value = v
		}
	}
}

// noBytes gives a list of files as text, which Plain takes.
func noBytes(v pickle.Value) pickle.Value {
	files, err := pickle.ByteSlices(v)
	if err != nil || len(files) == 0 {
		return v
	}
	out := list()
	for _, f := range files {
		out.Items = append(out.Items, string(f))
	}
	return out
}

func TestGoldenAnswersOfPythonAreRead(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"np_float_scores.p4.pkl", "np_float_scores.numpy2.p2.pkl", "np_f64_scalar_list.p4.pkl", "np_f64_scalar_list.numpy2.p2.pkl", "response_ok.p2.pkl"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// Three scores: one too many twice over for a single sample.
			score, err := scorer(t, says(t, golden(t, name)), options{"protocol": "deepgen"}).Score(t.Context(), sample(t))
			requireFailure(t, rewards.InvalidScore, score, err, "3 elements for 1 samples")
		})
	}
	t.Run("error", func(t *testing.T) {
		t.Parallel()
		score, err := scorer(t, says(t, golden(t, "response_err.p4.pkl")), options{"protocol": "deepgen"}).Score(t.Context(), sample(t))
		requireFailure(t, rewards.Internal, score, err, "the scorer reports an error", "Traceback")
	})
	t.Run("geneval", func(t *testing.T) {
		t.Parallel()
		s := sample(t)
		s.GroundTruth = json.RawMessage(`{"tag":"colors"}`)
		score, err := scorer(t, says(t, golden(t, "geneval_response.p4.pkl")), options{"protocol": "geneval"}).Score(t.Context(), s)
		require.NoError(t, err)
		assert.InDelta(t, 1, score.Value, 0)
		assert.InDelta(t, 0, score.Extra["strict_accuracy"], 0)
	})
}

func TestGoldenHostilePicklesAreRefusedAndNothingRuns(t *testing.T) {
	t.Parallel()
	for name, class := range map[string]rewards.Class{
		"bad_os_system.pkl": rewards.Internal, "bad_builtins_eval.pkl": rewards.Internal, "bad_memo_bomb_in_metadata.pkl": rewards.Internal,
		"bad_recursive_list.pkl": rewards.Internal, "bad_no_stop.pkl": rewards.Unavailable, "bad_huge_len_binunicode8.pkl": rewards.Unavailable,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			body := golden(t, name)
			score, err := scorer(t, says(t, body), options{"protocol": "deqa"}).Score(t.Context(), sample(t))
			requireFailure(t, class, score, err)
			// As the body of an error it is no better.
			srv := serve(t, func(int, request) (int, []byte) { return http.StatusInternalServerError, body })
			score, err = scorer(t, srv, options{"protocol": "deqa"}).Score(t.Context(), sample(t))
			requireFailure(t, rewards.Unavailable, score, err)
		})
	}
}

func TestGenEvalGivesTheValueAndTheColumnsOfFlowGRPO(t *testing.T) {
	t.Parallel()
	groups := func(v float64) *pickle.Dict {
		return dict("colors", list(v), "counting", list(-10.0), "unknown_tag", list(1.0))
	}
	answer := pickled(t, dict("scores", list(0.75), "rewards", list(1.0), "strict_rewards", list(0.0),
		"group_rewards", groups(1), "group_strict_rewards", groups(0)))
	s := sample(t)
	s.GroundTruth = json.RawMessage(`"{\"tag\":\"colors\"}"`) // as parquet has it: text that holds JSON
	tests := []struct {
		options options
		value   float64
		extra   map[string]any
	}{
		{nil, 0.75, map[string]any{"accuracy": 1.0, "strict_accuracy": 0.0, "colors_accuracy": 1.0, "colors_strict_accuracy": 0.0}},
		{options{"geneval_value": "rewards"}, 1, map[string]any{"accuracy": 1.0, "strict_accuracy": 0.0, "colors_accuracy": 1.0, "colors_strict_accuracy": 0.0}},
		{options{"geneval_value": "strict_rewards", "only_strict": true}, 0, map[string]any{"strict_accuracy": 0.0, "colors_strict_accuracy": 0.0}},
	}
	for _, tt := range tests {
		sc := scorer(t, says(t, answer), options{"protocol": "geneval"}.with(tt.options))
		score, err := sc.Score(t.Context(), s)
		require.NoError(t, err)
		assert.InDelta(t, tt.value, score.Value, 0)
		assert.Equal(t, tt.extra, score.Extra, "a group that is not the sample's is absent and not -10")
		declared := map[string]bool{}
		for _, f := range sc.(rewards.ExtraFielder).ExtraFields() {
			declared[f.Name] = true
		}
		assert.Len(t, declared, 14)
		for name := range score.Extra {
			assert.True(t, declared[name], name)
		}
	}
}

// Every fault of an answer's content, in both codings.
func TestAnAnswerThatIsNoScoreIsAFailureOfItsClass(t *testing.T) {
	t.Parallel()
	deepgen, factory := options{"protocol": "deepgen"}, options{"protocol": "flow_factory"}
	whole := pickled(t, dict("scores", list(0.5)))
	tests := map[string]struct {
		options options
		status  int
		body    []byte
		class   rewards.Class
		says    string
	}{
		"200 with an error":          {deepgen, 200, pickled(t, dict("error", "CUDA out of memory")), rewards.Internal, "CUDA out of memory"},
		"200 with an error, JSON":    {factory, 200, []byte(`{"error":"CUDA out of memory"}`), rewards.Internal, "CUDA out of memory"},
		"no scores":                  {deepgen, 200, pickled(t, dict("other", int64(1))), rewards.InvalidScore, `no "scores"; the answer has other`},
		"empty scores":               {deepgen, 200, pickled(t, dict("scores", list())), rewards.InvalidScore, "0 elements for 1 samples"},
		"empty rewards, JSON":        {factory, 200, []byte(`{"rewards":[]}`), rewards.InvalidScore, "0 elements"},
		"wrong count":                {deepgen, 200, pickled(t, dict("scores", list(1.0, 2.0))), rewards.InvalidScore, "2 elements for 1"},
		"scores are a number":        {deepgen, 200, pickled(t, dict("scores", 1.0)), rewards.InvalidScore, "want a list"},
		"NaN":                        {deepgen, 200, pickled(t, dict("scores", list(math.NaN()))), rewards.InvalidScore, "not finite"},
		"Inf":                        {deepgen, 200, pickled(t, dict("scores", list(math.Inf(-1)))), rewards.InvalidScore, "not finite"},
		"NaN, JSON":                  {factory, 200, []byte(`{"rewards":[NaN]}`), rewards.InvalidScore, "not finite"},
		"Infinity, JSON":             {factory, 200, []byte(`{"rewards":[-Infinity]}`), rewards.InvalidScore, "not finite"},
		"out of range, JSON":         {factory, 200, []byte(`{"rewards":[1e400]}`), rewards.InvalidScore, "not finite"},
		"a string":                   {deepgen, 200, pickled(t, dict("scores", list("0.5"))), rewards.InvalidScore, "str, want a number"},
		"a string, JSON":             {factory, 200, []byte(`{"rewards":["0.5"]}`), rewards.InvalidScore, "str, want a number"},
		"a bool":                     {deepgen, 200, pickled(t, dict("scores", list(true))), rewards.InvalidScore, "bool, want a number"},
		"a bool, JSON":               {factory, 200, []byte(`{"rewards":[true]}`), rewards.InvalidScore, "bool, want a number"},
		"None":                       {deepgen, 200, pickled(t, dict("scores", list(nil))), rewards.InvalidScore, "None, want a number"},
		"null, JSON":                 {factory, 200, []byte(`{"rewards":[null]}`), rewards.InvalidScore, "None, want a number"},
		"a nested list":              {deepgen, 200, pickled(t, dict("scores", list(list(0.5)))), rewards.InvalidScore, "list, want a number"},
		"a huge integer":             {deepgen, 200, pickled(t, dict("scores", list(int64(math.MaxInt64)))), rewards.InvalidScore, "2^53"},
		"a huge integer, JSON":       {factory, 200, []byte(`{"rewards":[` + strings.Repeat("9", 400) + `]}`), rewards.InvalidScore, "2^53"},
		"HTML":                       {deepgen, 200, []byte("<html><body>login</body></html>"), rewards.Unavailable, "login"},
		"HTML, JSON":                 {factory, 200, []byte("<html><body>login</body></html>"), rewards.Unavailable, "login"},
		"nothing":                    {deepgen, 200, nil, rewards.Unavailable, "begins nothing"},
		"nothing, JSON":              {factory, 200, nil, rewards.Unavailable, "begins nothing"},
		"truncated":                  {deepgen, 200, whole[:len(whole)-3], rewards.Unavailable, "not a complete pickle"},
		"truncated, JSON":            {factory, 200, []byte(`{"rewards":[0.`), rewards.Unavailable, "not JSON"},
		"twice, JSON":                {factory, 200, []byte(`{"rewards":[0.5]}{"rewards":[0.5]}`), rewards.Unavailable, "more than one"},
		"not a dict":                 {deepgen, 200, pickled(t, list(0.5)), rewards.InvalidScore, "list, want an object"},
		"deep, JSON":                 {factory, 200, []byte(strings.Repeat("[", 1000) + strings.Repeat("]", 1000)), rewards.Unavailable, "nested deeper"},
		"500 with a pickled error":   {deepgen, 500, pickled(t, dict("error", "Traceback\n  File x\nValueError: no")), rewards.Unavailable, "Traceback File x ValueError: no"},
		"500 with a text":            {deepgen, 500, []byte("Traceback (most recent call last):\n" + strings.Repeat("  frame\n", 5000) + "ValueError: the cause"), rewards.Unavailable, "ValueError: the cause"},
		"500, JSON":                  {factory, 500, []byte(`{"detail":"no such model"}`), rewards.Unavailable, "no such model"},
		"503":                        {deepgen, 503, []byte("busy"), rewards.Unavailable, "503"},
		"429":                        {factory, 429, nil, rewards.Unavailable, "429"},
		"400 with a pickled error":   {deepgen, 400, pickled(t, dict("error", "bad images")), rewards.BadInput, `answers 400: "bad images"`},
		"409":                        {factory, 409, []byte(`{"detail":"Conflict"}`), rewards.Internal, "Conflict"},
		"404":                        {factory, 404, nil, rewards.Internal, "404"},
		"413":                        {deepgen, 413, []byte("too large"), rewards.BadInput, "too large"},
		"422":                        {factory, 422, []byte(`{"detail":[{"msg":"field required"}]}`), rewards.BadInput, "field required"},
		"an answer beyond 8 MiB":     {deepgen, 200, make([]byte, 8<<20+1), rewards.Internal, "larger"},
		"control characters":         {deepgen, 418, []byte("\x1b[31mred\x00\r\nnext"), rewards.Internal, `"[31mred next"`},
		"an array of the wrong kind": {deepgen, 200, pickled(t, dict("scores", "0.5")), rewards.InvalidScore, "str, want a list"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := serve(t, func(int, request) (int, []byte) { return tt.status, tt.body })
			score, err := scorer(t, srv, tt.options).Score(t.Context(), sample(t))
			requireFailure(t, tt.class, score, err, tt.says, `sample "s1"`)
			assert.Len(t, srv.requests(), 1, "this package repeats nothing")
		})
	}
}

func TestWhatNumPyWritesIsRead(t *testing.T) {
	t.Parallel()
	// pickle.dumps({"scores": …}) of NumPy 2.4.6.
	for name, tt := range map[string]struct {
		pickle string
		class  rewards.Class
	}{
		"[np.array(0.5, f4)], protocol 2": {"gAJ9cQBYBgAAAHNjb3Jlc3EBXXECY251bXB5Ll9jb3JlLm11bHRpYXJyYXkKX3JlY29uc3RydWN0CnEDY251bXB5Cm5kYXJyYXkKcQRLAIVxBWNfY29kZWNzCmVuY29kZQpxBlgBAAAAYnEHWAYAAABsYXRpbjFxCIZxCVJxCodxC1JxDChLASljbnVtcHkKZHR5cGUKcQ1YAgAAAGY0cQ6JiIdxD1JxEChLA1gBAAAAPHERTk5OSv////9K/////0sAdHESYoloBlgEAAAAAAAAP3ETaAiGcRRScRV0cRZiYXMu", ""},
		"[np.array(0.5, f4)], protocol 4": {"gASVmQAAAAAAAAB9lIwGc2NvcmVzlF2UjBZudW1weS5fY29yZS5tdWx0aWFycmF5lIwMX3JlY29uc3RydWN0lJOUjAVudW1weZSMB25kYXJyYXmUk5RLAIWUQwFilIeUUpQoSwEpaAaMBWR0eXBllJOUjAJmNJSJiIeUUpQoSwOMATyUTk5OSv////9K/////0sAdJRiiUMEAAAAP5R0lGJhcy4=", ""},
		"[np.float32(0.5)]":               {"gASVdQAAAAAAAAB9lIwGc2NvcmVzlF2UjBZudW1weS5fY29yZS5tdWx0aWFycmF5lIwGc2NhbGFylJOUjAVudW1weZSMBWR0eXBllJOUjAJmNJSJiIeUUpQoSwOMATyUTk5OSv////9K/////0sAdJRiQwQAAAA/lIaUUpRhcy4=", ""},
		"np.array([[0.5]])":               {"gASVnwAAAAAAAAB9lIwGc2NvcmVzlIwWbnVtcHkuX2NvcmUubXVsdGlhcnJheZSMDF9yZWNvbnN0cnVjdJSTlIwFbnVtcHmUjAduZGFycmF5lJOUSwCFlEMBYpSHlFKUKEsBSwFLAYaUaAWMBWR0eXBllJOUjAJmOJSJiIeUUpQoSwOMATyUTk5OSv////9K/////0sAdJRiiUMIAAAAAAAA4D+UdJRicy4=", rewards.InvalidScore},
		"[2**70]":                         {"gASVGwAAAAAAAAB9lIwGc2NvcmVzlF2UigkAAAAAAAAAAEBhcy4=", rewards.Internal},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			body, err := base64.StdEncoding.DecodeString(tt.pickle)
			require.NoError(t, err)
			score, err := scorer(t, says(t, body), options{"protocol": "deepgen"}).Score(t.Context(), sample(t))
			if tt.class != "" {
				requireFailure(t, tt.class, score, err)
				return
			}
			require.NoError(t, err)
			assert.InDelta(t, 0.5, score.Value, 0)
		})
	}
}

func TestATrueZeroIsAScoreAndScaleAndBiasFollow(t *testing.T) {
	t.Parallel()
	srv := says(t, pickled(t, dict("scores", list(int64(0)))))
	score, err := scorer(t, srv, options{"protocol": "deepgen", "score_scale": 2, "score_bias": 0.5}).Score(t.Context(), sample(t))
	require.NoError(t, err)
	assert.InDelta(t, 0.5, score.Value, 0)
}

func TestDeclaredListsBesideTheScoresBecomeColumns(t *testing.T) {
	t.Parallel()
	o := options{"protocol": "deepgen", "extras": []options{{"name": "mos"}, {"name": "label", "path": "labels", "kind": "string"}, {"name": "missing"}, {"name": "wrong", "kind": "bool"}}}
	sc := scorer(t, says(t, pickled(t, dict("scores", list(0.5), "mos", list(int64(3)), "labels", list("good"), "wrong", list(1.0)))), o)
	score, err := sc.Score(t.Context(), sample(t))
	require.NoError(t, err)
	assert.Equal(t, map[string]any{"mos": 3.0, "label": "good"}, score.Extra, "what is missing or of another kind is absent")
	assert.Equal(t, []rewards.Field{{Name: "mos", Kind: rewards.Number}, {Name: "label", Kind: rewards.String}, {Name: "missing", Kind: rewards.Number}, {Name: "wrong", Kind: rewards.Bool}},
		sc.(rewards.ExtraFielder).ExtraFields())
	sc = scorer(t, says(t, pickled(t, dict("scores", list(0.5), "mos", list(1.0, 2.0)))), o)
	score, err = sc.Score(t.Context(), sample(t))
	requireFailure(t, rewards.InvalidScore, score, err, `"mos" has 2 elements for 1 samples`)
}

func TestAPictureThatCameInTheFormatIsSentAsItCame(t *testing.T) {
	t.Parallel()
	raw := image(t, 3)
	jpeg, png := file(t, "jpeg", raw, 0), file(t, "png", raw, 0)
	marked := append(append([]byte(nil), jpeg...), "trailing"...) // another encoder's file
	tests := map[string]struct {
		media  *rewards.Media
		format string
		want   []byte
	}{
		"jpeg as it came":       {encoded(t, rewards.JPEG, marked), "jpeg", marked},
		"png as it came":        {encoded(t, rewards.PNG, png), "png", png},
		"png to jpeg":           {encoded(t, rewards.PNG, png), "jpeg", jpeg},
		"raw to png":            {raw, "png", png},
		"first frame of frames": {decodable(t, &rewards.Media{Kind: rewards.Video, Encoding: rewards.Frames, DType: "U8", Frames: [][]byte{marked, jpeg}}), "jpeg", marked},
		"first frame of raw":    {video(t, 3), "jpeg", file(t, "jpeg", video(t, 3), 0)},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := says(t, pickled(t, dict("scores", list(0.5))))
			s := sample(t)
			s.Media = []*rewards.Media{tt.media}
			_, err := scorer(t, srv, options{"protocol": "verl_omni_http", "image_format": tt.format}).Score(t.Context(), s)
			require.NoError(t, err)
			d, _ := unpickle(t, srv.only(t).body).(*pickle.Dict)
			images, _ := d.Get("images")
			files, err := pickle.ByteSlices(images)
			require.NoError(t, err)
			assert.Equal(t, [][]byte{tt.want}, files)
		})
	}
}

func TestASampleThatDoesNotFitIsBadInputAndNothingIsSent(t *testing.T) {
	t.Parallel()
	bare := func(change func(*rewards.Sample)) *rewards.Sample {
		s := sample(t)
		change(s)
		return s
	}
	tests := map[string]struct {
		options options
		sample  *rewards.Sample
		says    string
	}{
		"no picture":           {options{"protocol": "deqa"}, bare(func(s *rewards.Sample) { s.Media = nil }), "no image or video"},
		"a video":              {options{"protocol": "deqa"}, bare(func(s *rewards.Sample) { s.Media = []*rewards.Media{video(t, 2)} }), "video: first_frame"},
		"no picture to edit":   {options{"protocol": "deepgen", "source_image": 2}, sample(t), "has 1 pictures"},
		"ground truth no text": {options{"protocol": "verl_omni_http"}, bare(func(s *rewards.Sample) { s.GroundTruth = json.RawMessage(`{"a":1}`) }), "ground_truth is dict, want text"},
		"no ground truth":      {options{"protocol": "verl_omni_http"}, bare(func(s *rewards.Sample) { s.GroundTruth = nil }), "has no ground_truth"},
		"no caption":           {options{"protocol": "deepgen", "prompt": "extra_info.title"}, sample(t), "has no extra_info.title"},
		"no row":               {options{"protocol": "geneval"}, sample(t), "ground_truth is str, want an object"},
		"garbage as a picture": {options{"protocol": "deqa"}, bare(func(s *rewards.Sample) { s.Media = []*rewards.Media{encoded(t, rewards.JPEG, []byte("<html>"))} }), ""},
		"a picture's beginning": {options{"protocol": "deepgen", "image_format": "png"}, bare(func(s *rewards.Sample) {
			s.Media = []*rewards.Media{encoded(t, rewards.JPEG, []byte{0xff, 0xd8, 0xff})}
		}), ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := says(t, nil)
			score, err := scorer(t, srv, tt.options).Score(t.Context(), tt.sample)
			requireFailure(t, rewards.BadInput, score, err, tt.says)
			assert.Empty(t, srv.requests())
		})
	}
}

func TestGoldenOSSystemLeftNoTrace(t *testing.T) {
	t.Parallel()
	body := string(golden(t, "bad_os_system.pkl"))
	_, after, ok := strings.Cut(body, "touch ")
	require.True(t, ok)
	name, _, _ := strings.Cut(after, "\x94")
	_, err := scorer(t, says(t, []byte(body)), options{"protocol": "deqa"}).Score(t.Context(), sample(t))
	require.Error(t, err)
	_, err = os.Stat(name)
	assert.ErrorIs(t, err, os.ErrNotExist)
}
