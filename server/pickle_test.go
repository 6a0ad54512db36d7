package server_test

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"hash/crc32"
	"math"
	"net/http"
	"net/http/httptrace"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/pickle"
	"github.com/rewardloop/rewardloop/rewards"
)

func TestEverySampleOfABatchGetsItsOwnScore(t *testing.T) {
	t.Parallel()
	s := newSite(t, siteOptions{})
	pictures := jpegs(64)
	prompts := make([]string, len(pictures))
	want := make([]float64, len(pictures))
	for i := range pictures {
		prompts[i] = strings.Repeat("p", i)
		want[i] = expected(prompts[i], pictures[i])
	}
	for name, p := range map[string]any{"list": prompts, "tuple": &pickle.Tuple{Items: anys(prompts)}} {
		r := s.post("/", pickled(t, "images", pictures, "prompts", p, "metadata", dictOf()))
		assert.Equal(t, want, r.scores(t), name)
		assert.NotEmpty(t, r.Header.Get("X-Request-Id"))
	}
}

func anys(list []string) []any {
	out := make([]any, len(list))
	for i, v := range list {
		out[i] = v
	}
	return out
}

func TestThePathsOfPickleClientsAreForgiving(t *testing.T) {
	t.Parallel()
	s := newSite(t, siteOptions{})
	body := pickled(t, "images", jpegs(1), "prompts", []string{"x"})
	for _, path := range []string{"", "/", "//", "/?a=b"} {
		assert.Equal(t, []float64{expected("x", jpegs(1)[0])}, s.post(path, body).scores(t), path)
	}
	for _, path := range []string{"/scorers/picky", "/scorers/picky/", "//scorers/picky//"} {
		assert.Equal(t, []float64{1}, s.post(path, body).scores(t), path)
	}
	message, _ := s.post("/scorers/nobody", body).refused(t, http.StatusUnprocessableEntity)
	assert.Contains(t, message, "nobody")
	assert.Contains(t, message, "picky", "the known rewards are named")
	for _, path := range []string{"/scorer/picky", "/scorers", "/scorers/", "/scorers/a/b", "/scoring"} {
		s.post(path, body).refused(t, http.StatusNotFound)
	}
	assert.Equal(t, http.StatusMethodNotAllowed, s.get("/scorers/picky").StatusCode)
}

func TestPicklesOfEveryClientBecomeSamples(t *testing.T) {
	t.Parallel()
	s := newSite(t, siteOptions{})
	pics := jpegs(2)
	t.Run("flow_grpo DeQA sends images alone", func(t *testing.T) {
		t.Parallel()
		assert.Equal(t, []float64{expected("", pics[0]), expected("", pics[1])}, s.post("/", pickled(t, "images", pics)).scores(t))
	})
	t.Run("metadata for all", func(t *testing.T) {
		t.Parallel()
		s.post("/", pickled(t, "images", pics, "prompts", []string{"m1", "m2"},
			"metadata", dictOf("ground_truth", []string{"a", "b"}, "lang", "en"))).scores(t)
		assert.JSONEq(t, `"b"`, string(s.byPrompt("m2").GroundTruth))
		assert.JSONEq(t, `{"lang":"en"}`, string(s.byPrompt("m2").ExtraInfo))
		s.post("/", pickled(t, "images", pics, "prompts", []string{"m3", "m4"}, "metadata", dictOf("ground_truth", "both"))).scores(t)
		assert.JSONEq(t, `"both"`, string(s.byPrompt("m4").GroundTruth))
		assert.Empty(t, s.byPrompt("m4").ExtraInfo)
	})
	t.Run("metadata for each", func(t *testing.T) {
		t.Parallel()
		s.post("/", pickled(t, "images", pics, "prompts", []string{"e1", "e2"},
			"metadata", []any{nil, dictOf("ground_truth", dictOf("k", 1), "n", 2.5)})).scores(t)
		assert.Empty(t, s.byPrompt("e1").GroundTruth)
		assert.JSONEq(t, `{"k":1}`, string(s.byPrompt("e2").GroundTruth))
		assert.JSONEq(t, `{"n":2.5}`, string(s.byPrompt("e2").ExtraInfo))
		s.post("/", pickled(t, "images", pics, "metadata", []any{dictOf()})).refused(t, http.StatusBadRequest)
		s.post("/", pickled(t, "images", pics, "metadata", "text")).refused(t, http.StatusBadRequest)
		s.post("/", pickled(t, "images", pics, "metadata", dictOf("x", math.NaN()))).refused(t, http.StatusBadRequest)
	})
	t.Run("edits have the edited picture first", func(t *testing.T) {
		t.Parallel()
		r := s.post("/", pickled(t, "images", dictOf("source", pics[:1], "edited", pics[1:]), "prompts", []string{"edit"}))
		assert.Equal(t, []float64{expected("edit", pics[1], pics[0])}, r.scores(t))
		s.post("/", pickled(t, "images", dictOf("source", pics, "edited", pics[1:]))).refused(t, http.StatusBadRequest)
		s.post("/", pickled(t, "images", dictOf("edited", pics[1:]))).refused(t, http.StatusBadRequest)
	})
	t.Run("ddpo's questions are refused by name where nothing answers them", func(t *testing.T) {
		t.Parallel()
		message, _ := s.post("/", pickled(t, "images", pics, "queries", []any{}, "answers", []any{})).refused(t, http.StatusUnprocessableEntity)
		assert.Contains(t, message, "LLaVA")
		assert.Contains(t, message, "llava", "who does is named")
	})
	t.Run("a key that nobody reads is refused", func(t *testing.T) {
		t.Parallel()
		message, _ := s.post("/", pickled(t, "images", pics, "videos", []any{})).refused(t, http.StatusBadRequest)
		assert.Contains(t, message, `"videos"`)
	})
	t.Run("lengths must match", func(t *testing.T) {
		t.Parallel()
		s.post("/", pickled(t, "images", pics, "prompts", []string{"one"})).refused(t, http.StatusBadRequest)
		s.post("/", pickled(t, "images", []any{})).refused(t, http.StatusBadRequest)
		s.post("/", pickled(t, "images", "bytes")).refused(t, http.StatusBadRequest)
		s.post("/", pickled(t, "prompts", []string{"one"})).refused(t, http.StatusBadRequest)
		s.post("/", nil).refused(t, http.StatusBadRequest)
		s.post("/", pickled(t, "images", jpegs(1025))).refused(t, http.StatusRequestEntityTooLarge)
	})
}

func TestGenEvalIsAnsweredWithItsFiveKeysByAProfileThatReportsThem(t *testing.T) {
	t.Parallel()
	s := newSite(t, siteOptions{})
	metas := []any{dictOf("tag", "counting", "prompt", "two cups"), dictOf("tag", "colors"), dictOf("tag", "odd")}
	flow := pickled(t, "images", jpegs(3), "meta_datas", metas, "only_strict", true)
	deepgen := pickled(t, "images", jpegs(3), "prompts", []string{"a", "b", "c"}, "metadata", dictOf("meta_datas", metas, "only_strict", false))
	for _, body := range [][]byte{flow, deepgen} {
		message, _ := s.post("/", body).refused(t, http.StatusUnprocessableEntity)
		assert.Contains(t, message, `"geneval"`)
		r := s.post("/scorers/geneval", body)
		assert.Equal(t, []float64{0.5, 0.5, 0.5}, r.scores(t))
		plain, err := pickle.Plain(r.dict(t))
		require.NoError(t, err)
		got, err := json.Marshal(plain)
		require.NoError(t, err)
		var groups struct {
			Rewards []float64            `json:"rewards"`
			Strict  []float64            `json:"strict_rewards"`
			Groups  map[string][]float64 `json:"group_rewards"`
			Stricts map[string][]float64 `json:"group_strict_rewards"`
		}
		require.NoError(t, json.Unmarshal(got, &groups))
		assert.Equal(t, []float64{0.5, 0.5, 0.5}, groups.Rewards)
		assert.Equal(t, []float64{1, 1, 1}, groups.Strict)
		assert.Len(t, groups.Groups, 7, "the six tags and the request's own")
		assert.Equal(t, []float64{0.5, -10, -10}, groups.Groups["counting"])
		assert.Equal(t, []float64{-10, -10, -10}, groups.Groups["position"])
		assert.Equal(t, []float64{-10, -10, 1}, groups.Stricts["odd"])
	}
	assert.JSONEq(t, `{"tag":"counting","prompt":"two cups","only_strict":true}`, string(s.byPrompt("two cups").ExtraInfo))
}

func TestAFailedSampleFailsItsBatchWithAStatusThatTellsWhetherToRetry(t *testing.T) {
	t.Parallel()
	s := newSite(t, siteOptions{loop: oneAttempt()})
	want := map[string]int{
		"fail-bad_input": 422, "fail-invalid_score": 422, "fail-internal": 422, "panic": 422, "fail-permanent": 422,
		"fail-timeout": 503, "fail-crashed": 503, "fail-unavailable": 503,
	}
	for profile, status := range want {
		message, failed := s.post("/scorers/"+profile, pickled(t, "images", jpegs(3))).refused(t, status)
		assert.Equal(t, []int64{0, 1, 2}, failed, profile)
		assert.Contains(t, message, "3 of 3", profile)
		s.succeed()
	}
	message, failed := s.post("/scorers/picky", pickled(t, "images", jpegs(3), "prompts", []string{"ok", "fail", "ok"})).refused(t, 422)
	assert.Equal(t, []int64{1}, failed)
	assert.Contains(t, message, "sample 1: main: bad_input")
}

func TestAFallbackStandsInWhereTheProfileNamesOne(t *testing.T) {
	t.Parallel()
	s := newSite(t, siteOptions{policies: map[string]rewards.SamplePolicy{"picky": {Policy: rewards.PolicyValue, Value: -3}}})
	r := s.post("/scorers/picky", pickled(t, "images", jpegs(3), "prompts", []string{"ok", "fail", "ok"}))
	assert.Equal(t, []float64{1, -3, 1}, r.scores(t))
}

func TestPicturesAreWhatTheirBytesSay(t *testing.T) {
	t.Parallel()
	s := newSite(t, siteOptions{})
	message, failed := s.post("/", pickled(t, "images", [][]byte{jpegs(1)[0], []byte("GIF89a"), nil})).refused(t, 422)
	assert.Equal(t, []int64{1, 2}, failed)
	assert.Contains(t, message, "[1 2]")

	png, err := os.ReadFile(golden(t, "images", "img_00_64x64.png"))
	require.NoError(t, err)
	jpg, err := os.ReadFile(golden(t, "ocr", "g00_0.jpg"))
	require.NoError(t, err)
	webp, err := os.ReadFile(filepath.Join("..", "media", "testdata", "pil", "webp_lossy.webp"))
	require.NoError(t, err)
	scores := s.post("/scorers/pixels", pickled(t, "images", [][]byte{png, jpg, webp})).scores(t)
	assert.InDelta(t, 64*64, scores[0], 0)
	assert.Positive(t, scores[1])
	assert.Positive(t, scores[2])
}

func TestAPictureThatClaims65535Squared(t *testing.T) {
	t.Parallel()
	s := newSite(t, siteOptions{})
	chunk := func(kind string, body []byte) []byte {
		b := binary.BigEndian.AppendUint32(nil, uint32(len(body)))
		typed := append([]byte(kind), body...)
		return binary.BigEndian.AppendUint32(append(b, typed...), crc32.ChecksumIEEE(typed))
	}
	header := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, 65535), 65535)
	png := append([]byte("\x89PNG\r\n\x1a\n"), chunk("IHDR", append(header, 8, 6, 0, 0, 0))...)
	png = append(png, chunk("IDAT", nil)...)
	message, failed := s.post("/scorers/pixels", pickled(t, "images", [][]byte{png})).refused(t, 422)
	assert.Equal(t, []int64{0}, failed)
	assert.Contains(t, message, "65535")
}

// goldenPickles reads the index of the golden pickles.
func goldenPickles(t *testing.T) (accepted, rejected map[string][]byte) {
	t.Helper()
	index, err := os.Open(golden(t, "pickle", "index.jsonl"))
	require.NoError(t, err)
	defer index.Close()
	accepted, rejected = map[string][]byte{}, map[string][]byte{}
	lines := bufio.NewScanner(index)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var entry struct{ File, Reject string }
		require.NoError(t, json.Unmarshal(lines.Bytes(), &entry))
		body, err := os.ReadFile(golden(t, "pickle", entry.File))
		require.NoError(t, err)
		if entry.Reject != "" {
			rejected[entry.File] = body
		} else {
			accepted[entry.File] = body
		}
	}
	require.NoError(t, lines.Err())
	return accepted, rejected
}

func TestGoldenPicklesThatMustBeRejectedLeaveTheirConnectionUsable(t *testing.T) {
	t.Parallel()
	_, rejected := goldenPickles(t)
	s := newSite(t, siteOptions{})
	good := pickled(t, "images", jpegs(1))
	reused := false
	trace := &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { reused = i.Reused }}
	ctx := httptrace.WithClientTrace(t.Context(), trace)
	s.post("/", good).scores(t)
	for name, body := range rejected {
		status := http.StatusBadRequest
		if name == "bad_image_garbage.pkl" {
			status = http.StatusUnprocessableEntity
		}
		s.do(s.request(ctx, http.MethodPost, "/", body)).refused(t, status)
		assert.True(t, reused, name)
		s.do(s.request(ctx, http.MethodPost, "/", good)).scores(t)
		assert.True(t, reused, "the request after %s had to open a connection", name)
	}
	_, err := os.Stat(filepath.Join(os.TempDir(), "pwned")) // what some of them would run
	assert.ErrorIs(t, err, os.ErrNotExist)
}

func TestGoldenPickledRequestsAreAnswered(t *testing.T) {
	t.Parallel()
	accepted, _ := goldenPickles(t)
	s := newSite(t, siteOptions{})
	for name, body := range accepted {
		r := s.post("/scorers/geneval", body)
		switch {
		case strings.HasPrefix(name, "verl_omni_http"), strings.HasPrefix(name, "flow_grpo"), strings.HasPrefix(name, "shared_refs"):
			assert.NotEmpty(t, r.scores(t), name)
		default: // no request, or not of this route
			assert.GreaterOrEqual(t, r.StatusCode, 400, name)
			assert.Less(t, r.StatusCode, 500, name)
			r.refused(t, r.StatusCode)
		}
	}
}

func TestRefusalsAreNeverPlainText(t *testing.T) {
	t.Parallel()
	s := newSite(t, siteOptions{})
	for _, r := range []reply{
		s.post("/", []byte("hello")),
		s.post("/", bytes.Repeat([]byte{'('}, 100_000)),
		s.post("/", pickled(t, "images", jpegs(1)), "Content-Encoding", "gzip"),
		s.post("/?token=secret", nil),
		s.post("/nowhere", nil),
		s.post("/", nil, "Sec-Fetch-Site", "cross-site"),
	} {
		r.refused(t, r.StatusCode)
	}
}
