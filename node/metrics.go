package node

import (
	"maps"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rewardloop/rewardloop/internal/metric"
	"github.com/rewardloop/rewardloop/internal/spool"
	"github.com/rewardloop/rewardloop/internal/subprocess"
	"github.com/rewardloop/rewardloop/pool"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/python"
)

// buildMetric says which release runs.
func buildMetric(reg prometheus.Registerer, version string) {
	metric.Table(metric.For(reg, ""), []string{"version", "goversion"}, func(yield func(one int, values ...string)) { yield(1, version, runtime.Version()) },
		metric.Gauge("build_info", "1; the labels say which release of rewardloop runs, and which release of Go built it.", func(one int) int { return one }))
}

// scorerMetrics show what the devices, child processes and Python functions of the scorers count.
func scorerMetrics(reg prometheus.Registerer, s *Scorers) {
	metric.For(reg, "").Gauge("decode_booked_bytes", "Bytes of pool.decode.budget_bytes that are reserved for pixels: pixels being decoded, pixels in use by scorers, and pixels cached for further scorers.",
		func() float64 { return float64(s.Readers.Decoder.Booked()) })
	childMetrics(reg, s.Children)
	deviceMetrics(reg, s.Readers.Devices.Stats)
	metric.Table(metric.For(reg, "python"), []string{"function"}, each(s.functions),
		metric.Gauge("waiting_calls", "Calls to the Python function that wait for a free Python process.", func(s python.Stats) int { return s.Waiting }),
		metric.Gauge("held_back", "1 while processes of the Python function start only after pauses, because processes crash or do not start, else 0.",
			func(s python.Stats) bool { return s.Reason != "" }))
}

// each yields the things of a map under their names.
func each[T any](all func() map[string]T) func(yield func(thing T, values ...string)) {
	return func(yield func(thing T, values ...string)) {
		for name, thing := range all() {
			yield(thing, name)
		}
	}
}

func childMetrics(reg prometheus.Registerer, children func() map[string]subprocess.Stats) {
	metric.Table(metric.For(reg, ""), []string{"of"}, each(children),
		metric.Gauge("children", "Child processes that are ready to work, by what they run.", func(s subprocess.Stats) int { return len(s.PIDs) }),
		metric.Count("children_restarts_total", "Child processes that were started in place of another one, by what they run.", func(s subprocess.Stats) uint64 { return s.Restarts }),
		metric.Count("children_crashes_total", "Child processes that crashed or returned an invalid answer, by what they run.", func(s subprocess.Stats) uint64 { return s.Crashes }),
		metric.Count("children_timeouts_total", "Child processes that were killed because a deadline had passed, by what they run.", func(s subprocess.Stats) uint64 { return s.Timeouts }),
		metric.Gauge("children_quarantined", "1 while the GPU of the child processes is not used because the processes failed 5 times within 10 minutes, else 0, by what the processes run.",
			func(s subprocess.Stats) bool { return s.Quarantine != nil }),
	)
}

func deviceMetrics(reg prometheus.Registerer, stats func() pool.Stats) {
	type device = pool.DeviceStats
	set := metric.For(reg, "pool")
	metric.Table(set, []string{"device"}, func(yield func(d device, values ...string)) {
		for _, d := range stats().Devices {
			yield(d, d.Device)
		}
	},
		metric.Gauge("slots", "Batches that the device can run at a time; 0 until the device is open.", func(d device) int { return d.Slots }),
		metric.Gauge("running", "Batches that the device runs at the moment.", func(d device) int { return d.Running }),
		metric.Gauge("queued", "Items that wait for the device, for room in its queue, or for permission to start preprocessing.", func(d device) int { return d.Queued + d.Waiting + d.AtIngress }),
		metric.Count("open_failures_total", "Failed attempts to open the device.", func(d device) uint64 { return d.OpenFailures }),
		metric.Gauge("memory_budget_bytes", "Bytes of the device's memory that models may use; 0 if there is no limit.", func(d device) int64 { return d.Budget }),
		metric.Gauge("memory_bytes", "Bytes of device memory that loaded models use, as ONNX Runtime reports, or estimated as twice the size of the model files.", func(d device) int64 { return d.Taken }),
		metric.Count("evictions_total", "Models that were unloaded from the device to make room for others.", func(d device) uint64 { return d.Evictions }),
		metric.Count("memory_restarts_total", "Times that the processes of the device were restarted because the memory was too small for an item and no model could be unloaded.", func(d device) uint64 { return d.Restarts }),
	)

	type model = pool.ModelStats
	metric.Table(set, []string{"device", "model"}, func(yield func(m model, values ...string)) {
		for _, d := range stats().Devices {
			for i, name := range modelNames(d.Models) {
				yield(d.Models[i], d.Device, name)
			}
		}
	},
		metric.Gauge("loaded", "1 while the model is loaded on the device, else 0.", func(m model) bool { return m.Loaded }),
		metric.Count("load_failures_total", "Failed attempts to load the model on the device.", func(m model) uint64 { return m.LoadFailures }),
		metric.Counts("items_total", "Items of the model that ended on the device, by end: answered, failed, expired, left (abandoned by the caller) or moved (to another device).", "end",
			func(m model, put func(float64, ...string)) {
				t := m.Total
				for end, n := range map[string]uint64{"answered": t.Items, "failed": t.Failed, "expired": t.Expired, "left": t.Left, "moved": t.Moved} {
					put(float64(n), end)
				}
			}),
		metric.Count("batches_total", "Batches of the model that the device completed without an error.", func(m model) uint64 { return m.Total.Batches }),
		metric.Count("faults_total", "Failed runs of the model on the device, plus rows of the model's output that contained NaN or infinity.", func(m model) uint64 { return m.Total.Faults }),
		metric.Count("splits_total", "Runs of the model whose batch was split in two because the memory of the device was too small.", func(m model) uint64 { return m.Total.Splits }),
		metric.Count("retries_total", "Items of the model that the device ran again.", func(m model) uint64 { return m.Total.Retries }),
		metric.Count("waits_total", "Times that the device could have run a batch of the model and waited for a fuller one.", func(m model) uint64 { return m.Total.Waits }),
		metric.Count("queue_seconds_total", "Time in seconds that items of the model spent queued for the device.", func(m model) float64 { return m.Total.Queue.Seconds() }),
		metric.Count("busy_seconds_total", "Time in seconds that the device spent on batches of the model, added up over batches that run at the same time.", func(m model) float64 { return m.Total.Busy.Seconds() }),
	)
}

// extraMetrics show what the rewards left out of reward_extra_info.
func extraMetrics(reg prometheus.Registerer, managers map[string]*rewards.Manager) {
	managers = maps.Clone(managers)
	metric.Table(metric.For(reg, "reward"), []string{"reward"}, each(func() map[string]*rewards.Manager { return managers }),
		metric.Count("dropped_extras_total", "Values that the reward left out of reward_extra_info because their names were not declared.", (*rewards.Manager).DroppedExtra))
}

// spoolMetrics show how the spool of a durable gateway is.
func spoolMetrics(reg prometheus.Registerer, s *spool.Spool) {
	metric.Table(metric.For(reg, "spool"), nil, func(yield func(st spool.Stats, values ...string)) { yield(s.Stats()) },
		metric.Gauge("bytes", "Bytes of the files in queue.spool_dir.", func(st spool.Stats) int64 { return st.Bytes + st.Reserve }),
		metric.Gauge("live_bytes", "Bytes in queue.spool_dir of records that the gateway needs: samples without a result, and results that are not confirmed.", func(st spool.Stats) int64 { return st.Live }),
		metric.Gauge("records", "Records in queue.spool_dir that the gateway needs.", func(st spool.Stats) int { return st.Records }),
		metric.Count("skipped_total", "Damaged and half-written records in queue.spool_dir that the gateway skipped.", func(st spool.Stats) uint64 { return st.Skipped }),
		metric.Count("refused_total", "Attempts of clients to send a sample that were refused because the spool was full or could not be written; the client keeps the sample and retries.", func(st spool.Stats) uint64 { return st.Refused }),
		metric.Gauge("full", "1 while the spool accepts no samples because the spool is full or cannot be written, else 0.", func(spool.Stats) bool { return s.Trouble() != nil }),
		metric.Count("write_failures_total", "Writes to queue.spool_dir that failed with an error of the operating system.", func(st spool.Stats) uint64 { return st.Failed }),
	)
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
