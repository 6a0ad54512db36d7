package architecture_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards"
)

// What a server answers has the form that /openapi.json says, wherever it says one.
func TestAnswersHaveTheFormOfTheDocument(t *testing.T) {
	t.Parallel()
	_, addr := serving(t, "reward.custom_reward_function.path=builtin://jpeg_incompressibility", "reward.num_workers=1", "++store.path="+filepath.Join(t.TempDir(), "store.db"))
	c := dialled(t, addr, "run")
	require.NoError(t, c.Step(rewards.Train, 1, 2))
	var group []rewards.Sample
	for i := range 2 {
		picture, _ := speckled(16, 16, uint64(i)) //nolint:gosec // a small number
		group = append(group, rewards.Sample{ID: string(rune('a' + i)), Step: 1, UID: "u", GroupSize: 2, Media: []*rewards.Media{picture}})
	}
	scored(t, c, group...)
	f, err := c.Submit(t.Context(), &rewards.Sample{ID: "no picture", Step: 1}, 0)
	require.NoError(t, err)
	_, err = f.Wait(t.Context())
	require.NoError(t, err)

	require.Eventually(t, func() bool { return strings.Contains(get(t, "http://"+addr+"/v1/results"), `"total":3`) }, 30*time.Second, 10*time.Millisecond, "they are kept")
	text := get(t, "http://"+addr+"/openapi.json")
	whole, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	require.NoError(t, err)
	compiler := jsonschema.NewCompiler()
	require.NoError(t, compiler.AddResource("mem:///openapi.json", whole))
	// conforms checks a body by the schema at a place of the document.
	conforms := func(what string, body []byte, at ...string) {
		t.Helper()
		for i, p := range at {
			at[i] = strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D").Replace(p)
		}
		schema, err := compiler.Compile("mem:///openapi.json#/" + strings.Join(at, "/") + "/content/application~1json/schema")
		require.NoError(t, err, what)
		v, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
		require.NoError(t, err, what)
		assert.NoError(t, schema.Validate(v), "%s: %s", what, body)
	}

	var d struct {
		Paths map[string]map[string]struct {
			Responses map[string]struct{ Content map[string]json.RawMessage }
		}
	}
	require.NoError(t, json.Unmarshal([]byte(text), &d))
	checked := 0
	for path, methods := range d.Paths {
		o, ok := methods["get"]
		if _, described := o.Responses["200"].Content["application/json"]; !ok || !described || path == "/v1/models" {
			continue
		}
		url := strings.NewReplacer("{run}", "run", "{step}", "1", "{name}", "default", "{key}", "1").Replace(path)
		conforms(path, []byte(get(t, "http://"+addr+url)), "paths", path, "get", "responses", "200")
		checked++
	}
	assert.GreaterOrEqual(t, checked, 12)
	conforms("a step that nobody knows", []byte(get(t, "http://"+addr+"/v1/runs/none/steps/1")), "components", "responses", "Refused")

	for _, body := range []string{
		`{"id":"x","prompt":"p","extra_info":{"a":1},"traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01","images":[{"b64":"","encoding":"raw","layout":"HWC","dtype":"U8","shape":[0,0,3]}]}`,
		`{"samples":[{"id":"y","step":3}],"on_sample_failure":"zero","deadline_ms":60000}`,
	} {
		conforms("a request", []byte(body), "paths", "/v1/score", "post", "requestBody")
		res, err := http.Post("http://"+addr+"/v1/score", "application/json", strings.NewReader(body))
		require.NoError(t, err)
		answer, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		if res.StatusCode == http.StatusOK {
			conforms("an answer", answer, "paths", "/v1/score", "post", "responses", "200")
		} else {
			conforms("a refusal", answer, "components", "responses", "Refused")
		}
	}
}
