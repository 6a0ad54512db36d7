package node

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/rewardloop/rewardloop/internal/slot"
	"github.com/rewardloop/rewardloop/pool"
	"github.com/rewardloop/rewardloop/rewards"
)

// devices collects what the scorers' devices and child processes count, at the
// moment they are asked.
type devices struct{ scorers *Scorers }

var _ prometheus.Collector = devices{}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("rewardloop_"+name, help, labels, nil)
}

//nolint:gochecknoglobals // tables
var (
	deviceSlots   = desc("pool_slots", "Batches that a device can run at once; 0 until it is open.", "device")
	deviceRunning = desc("pool_running", "Batches that a device runs.", "device")
	deviceQueued  = desc("pool_queued", "Items that wait for a slot, for room in the queue, or for leave to be made ready.", "device")
	deviceFailed  = desc("pool_open_failures_total", "Tries to open a device that failed.", "device")

	deviceBudget   = desc("pool_memory_budget_bytes", "Bytes of its memory that a device has for models; 0: not bounded.", "device")
	deviceTaken    = desc("pool_memory_bytes", "Bytes of its memory that the models of a device take, as estimated or as the runtime says.", "device")
	deviceEvicted  = desc("pool_evictions_total", "Models that were unloaded to make room for others.", "device")
	deviceRestarts = desc("pool_memory_restarts_total", "Times that a device's processes were started anew for want of memory.", "device")

	decodeBooked = desc("decode_booked_bytes", "Bytes of pool.decode.budget_bytes that decoded pixels take, while they are decoded or read, or kept to be read again.")

	modelItems   = desc("pool_items_total", "Items that are over, by how they ended.", "device", "model", "end")
	modelBatches = desc("pool_batches_total", "Batches that went well.", "device", "model")
	modelFaults  = desc("pool_faults_total", "Runs that failed and rows that held NaN or an infinity.", "device", "model")
	modelSplits  = desc("pool_splits_total", "Runs that had no memory and were halved.", "device", "model")
	modelRetries = desc("pool_retries_total", "Items that were run again.", "device", "model")
	modelWaits   = desc("pool_waits_total", "Times that a free slot was kept for a fuller batch.", "device", "model")
	modelQueue   = desc("pool_queue_seconds_total", "Time that items spent queued.", "device", "model")
	modelBusy    = desc("pool_busy_seconds_total", "Time that slots spent on batches.", "device", "model")
	modelLoaded  = desc("pool_loaded", "1 while a model is loaded on a device, else 0.", "device", "model")
	modelLoads   = desc("pool_load_failures_total", "Tries to load a model that failed.", "device", "model")

	childrenReady    = desc("children", "Child processes that can work.", "of")
	childrenRestarts = desc("children_restarts_total", "Child processes that replaced another.", "of")
	childrenCrashes  = desc("children_crashes_total", "Child processes that died at work or answered garbage.", "of")
	childrenTimeouts = desc("children_timeouts_total", "Child processes that were killed at a deadline.", "of")
	childrenRest     = desc("children_quarantined", "1 while the card of the child processes is in quarantine; else 0.", "of")

	pythonWaiting  = desc("python_waiting_calls", "Calls of a Python function that wait for a process.", "function")
	pythonHeldBack = desc("python_held_back", "1 while a Python function has one process after a pause, because its samples end their process or no process starts; else 0.", "function")

	extrasDropped = desc("reward_dropped_extras_total", "Values in reward_extra_info that were left out, their names undeclared.", "reward")
)

// Describe implements prometheus.Collector. What is collected depends on which
// devices are in use, so nothing is promised.
func (d devices) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (d devices) Collect(to chan<- prometheus.Metric) {
	for of, stats := range d.scorers.Children() {
		children(to, of, stats)
	}
	for _, s := range d.scorers.Readers.Devices.Stats().Devices {
		device(to, s)
	}
	to <- prometheus.MustNewConstMetric(decodeBooked, prometheus.GaugeValue, float64(d.scorers.Readers.Decoder.Booked()))
	for function, s := range d.scorers.functions() {
		held := 0
		if s.Reason != "" {
			held = 1
		}
		gauge(to, pythonWaiting, s.Waiting, function)
		gauge(to, pythonHeldBack, held, function)
	}
}

// extras collects what the rewards left out of reward_extra_info.
type extras map[string]*rewards.Manager

var _ prometheus.Collector = extras{}

// Describe implements prometheus.Collector.
func (extras) Describe(to chan<- *prometheus.Desc) { to <- extrasDropped }

// Collect implements prometheus.Collector.
func (e extras) Collect(to chan<- prometheus.Metric) {
	for name, m := range e {
		count(to, extrasDropped, float64(m.DroppedExtra()), name)
	}
}

func children(to chan<- prometheus.Metric, of string, s slot.Stats) {
	gauge(to, childrenReady, len(s.PIDs), of)
	count(to, childrenRestarts, float64(s.Restarts), of)
	count(to, childrenCrashes, float64(s.Crashes), of)
	count(to, childrenTimeouts, float64(s.Timeouts), of)
	quarantined := 0
	if s.Quarantine != nil {
		quarantined = 1
	}
	gauge(to, childrenRest, quarantined, of)
}

func device(to chan<- prometheus.Metric, s pool.DeviceStats) {
	gauge(to, deviceSlots, s.Slots, s.Device)
	gauge(to, deviceRunning, s.Running, s.Device)
	gauge(to, deviceQueued, s.Queued+s.Waiting+s.AtDoor, s.Device)
	count(to, deviceFailed, float64(s.OpenFailures), s.Device)
	gauge(to, deviceBudget, int(s.Budget), s.Device)
	gauge(to, deviceTaken, int(s.Taken), s.Device)
	count(to, deviceEvicted, float64(s.Evictions), s.Device)
	count(to, deviceRestarts, float64(s.Restarts), s.Device)
	for i, name := range modelNames(s.Models) {
		m := &s.Models[i]
		labels := []string{s.Device, name}
		t := m.Total
		loaded := 0
		if m.Loaded {
			loaded = 1
		}
		gauge(to, modelLoaded, loaded, labels...)
		count(to, modelLoads, float64(m.LoadFailures), labels...)
		for end, n := range map[string]uint64{"answered": t.Items, "failed": t.Failed, "expired": t.Expired, "left": t.Left, "moved": t.Moved} {
			count(to, modelItems, float64(n), append(labels, end)...)
		}
		count(to, modelBatches, float64(t.Batches), labels...)
		count(to, modelFaults, float64(t.Faults), labels...)
		count(to, modelSplits, float64(t.Splits), labels...)
		count(to, modelRetries, float64(t.Retries), labels...)
		count(to, modelWaits, float64(t.Waits), labels...)
		count(to, modelQueue, t.Queue.Seconds(), labels...)
		count(to, modelBusy, t.Busy.Seconds(), labels...)
	}
}

// modelNames are the labels of the models of a device. Those that have the same name, such as folders
// of one name in several places, have their file behind it: two series with the same labels would
// cost the whole page.
func modelNames(all []pool.ModelStats) []string {
	of := map[string]int{}
	for _, m := range all {
		of[m.Model.Name]++
	}
	names := make([]string, len(all))
	for i, m := range all {
		if names[i] = m.Model.Name; of[names[i]] > 1 {
			names[i] += " (" + m.Model.Path + ")"
		}
	}
	return names
}

func gauge(to chan<- prometheus.Metric, d *prometheus.Desc, n int, labels ...string) {
	to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), labels...)
}

func count(to chan<- prometheus.Metric, d *prometheus.Desc, n float64, labels ...string) {
	to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, n, labels...)
}
