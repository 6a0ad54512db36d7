package engines_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/pool/engines"
)

func TestTheCommandsAreThoseOfTheEnginesDocumentation(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]engines.Config{
		"vllm serve M --served-model-name S --tensor-parallel-size 1 --host 127.0.0.1 --port 9": {Kind: engines.VLLM},
		"vllm serve M --served-model-name S --tensor-parallel-size 4 --pipeline-parallel-size 2 --data-parallel-size 3 --host 127.0.0.1 --port 9 --enforce-eager": {
			Kind: engines.VLLM, Parallel: engines.Parallel{Tensor: 4, Pipeline: 2, Data: 3}, Args: []string{"--enforce-eager"},
		},
		"py -m vllm.entrypoints.openai.api_server --model M --served-model-name S --tensor-parallel-size 1 --host 127.0.0.1 --port 9": {Kind: engines.VLLM, Python: "py"},
		"python3 -m sglang.launch_server --model-path M --served-model-name S --tp-size 2 --pp-size 2 --dp-size 2 --host 127.0.0.1 --port 9": {
			Kind: engines.SGLang, Parallel: engines.Parallel{Tensor: 2, Pipeline: 2, Data: 2},
		},
		"transformers serve M --host 127.0.0.1 --port 9 --device cpu": {Kind: engines.Transformers, Device: "cpu"},
	} {
		c.Model, c.Served = "M", "S"
		got, err := c.Command(9)
		require.NoError(t, err)
		assert.Equal(t, want, strings.Join(got, " "))
	}
	_, err := engines.Config{Kind: "ollama"}.Command(9)
	require.ErrorContains(t, err, `"ollama" is not a kind of engine that rewardloop starts, want one of [vllm sglang transformers]`)
}

func TestAConfigurationNamesAllItsFaults(t *testing.T) {
	t.Parallel()
	_, err := engines.New(engines.Config{Name: "a/b", Kind: "x", Args: []string{"--port=1"}})
	for _, want := range []string{`name is "a/b"`, `kind is "x"`, "no model", "0 servers", "--port is set by rewardloop"} {
		require.ErrorContains(t, err, want)
	}
}

func TestALogIsBoundedAndAFullDiskCostsTheFileAlone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	o := engines.OpenOutput(dir, "judge-0", 100)
	for range 25 {
		n, err := o.Write([]byte("0123456789"))
		require.NoError(t, err)
		require.Equal(t, 10, n)
	}
	for name, size := range map[string]int64{"judge-0.log": 50, "judge-0.1.log": 100} {
		info, err := os.Stat(dir + "/" + name)
		require.NoError(t, err)
		assert.Equal(t, size, info.Size(), name)
	}
	o.Close()
	n, err := engines.OpenOutput(dir+"/none", "x", 100).Write([]byte("x"))
	require.NoError(t, err)
	assert.Equal(t, 1, n)
}
