package node_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/node"
	"github.com/rewardloop/rewardloop/pool"
)

func TestModelsOfOneNameHaveSeriesOfTheirOwn(t *testing.T) {
	t.Parallel()
	var models []pool.ModelStats
	for _, path := range []string{"/a/clip/text.onnx", "/b/clip/text.onnx", "/a/other/text.onnx"} {
		models = append(models, pool.ModelStats{Model: infer.Model{Name: "clip/text", Path: path, Device: "cpu"}})
	}
	models[2].Model.Name = "other/text"
	registry := prometheus.NewRegistry()
	node.DeviceMetrics(registry, pool.DeviceStats{Device: "cpu", Models: models})
	families, err := registry.Gather()
	require.NoError(t, err)
	var names []string
	for _, f := range families {
		if f.GetName() == "rewardloop_pool_loaded" {
			for _, m := range f.GetMetric() {
				names = append(names, m.GetLabel()[1].GetValue())
			}
		}
	}
	require.ElementsMatch(t, []string{"clip/text (/a/clip/text.onnx)", "clip/text (/b/clip/text.onnx)", "other/text"}, names)
}
