package node

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/pool"
)

// CollectLimit is what the heap may take in a container of so many bytes.
var CollectLimit = collectLimit

// Opened is what the pool is opened with: the cards of its children and the memory for models.
func (d *Devices) Opened() (visible []string, memory map[string]int64) {
	book, _, _ := d.places("cuda")
	return book.visible(), book.memory()
}

// DeviceMetrics registers the metrics of devices.
func DeviceMetrics(reg prometheus.Registerer, d ...pool.DeviceStats) {
	deviceMetrics(reg, func() pool.Stats { return pool.Stats{Devices: d} })
}

// Digest tells configurations of a profile apart.
func Digest(p *config.Profile) string { return digest(p) }
