package node

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/rewardloop/rewardloop/pool"
)

// CollectLimit is what the heap may take in a container of so many bytes.
var CollectLimit = collectLimit

// Opened is what the pool is opened with: the cards of its children and the memory for models.
func (d *Devices) Opened() (visible []string, memory map[string]int64) {
	book, _, _ := d.places("cuda")
	return book.visible(), book.memory()
}

// DeviceMetrics collects the metrics of a device.
type DeviceMetrics pool.DeviceStats

// Describe implements prometheus.Collector.
func (DeviceMetrics) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (d DeviceMetrics) Collect(to chan<- prometheus.Metric) { device(to, pool.DeviceStats(d)) }
