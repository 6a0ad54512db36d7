package wire

import "time"

// WorkerInfo is what a worker tells of itself.
type WorkerInfo struct {
	// ID is unique among live workers.
	ID string `json:"id"`
	// Slots is how many samples it scores at once when healthy; Busy how many it
	// scores now, abandoned ones included.
	Slots int `json:"slots"`
	Busy  int `json:"busy"`
	// State is "ready", "broken" (it reaches no gateway), "sick" (too many abandoned
	// scorers) or "draining".
	State string `json:"state"`
	// Rewards names the profiles it serves.
	Rewards []string `json:"rewards,omitempty"`
	// Pool names the workers that serve the same rewards; empty: all do.
	Pool string `json:"pool,omitempty"`
	// Host is the machine it runs on, Devices and Models what it scores with there, such
	// as cuda:0 and ppocr-v4-mobile.
	Host    string   `json:"host,omitempty"`
	Devices []string `json:"devices,omitempty"`
	Models  []string `json:"models,omitempty"`
	Version string   `json:"version,omitempty"`
	// Scored and Failed count samples since its start.
	Scored uint64 `json:"scored"`
	Failed uint64 `json:"failed"`
	// Started is when this life of the worker began: one that is restarted under the same
	// name is another worker to the gateway's breakers.
	Started time.Time `json:"started,omitzero"`
	// Seen is when the gateway last heard of it.
	Seen time.Time `json:"seen"`
}

// States of a worker.
const (
	WorkerReady    = "ready"
	WorkerBroken   = "broken"
	WorkerSick     = "sick"
	WorkerDraining = "draining"
)
