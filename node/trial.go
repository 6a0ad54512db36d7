package node

import (
	"time"

	"github.com/rewardloop/rewardloop/pool"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/python"
)

// LoadTime returns how long Start took to start the scorers' processes and load their models.
func (n *Node) LoadTime() time.Duration { return n.warmed }

// Grouped reports whether a reward scores whole prompt groups.
func (n *Node) Grouped(reward string) bool { return n.managers[reward].Grouped() }

// KnownSamples returns known samples that a reward accepts, once Start has returned: for a function
// in Python those that fit its parameters, and for any other scorer a picture with a prompt, a
// response and a ground truth. There are none if the entry of the function forbids such calls.
func (n *Node) KnownSamples(reward string) []*rewards.Sample {
	samples, knows := n.managers[reward].KnownSamples()
	if !knows {
		samples = []*rewards.Sample{python.KnownSample(string(rewards.Image), true)}
	}
	return samples
}

// Pool returns the current state and the counters of the devices.
func (n *Node) Pool() pool.Stats { return n.scorers.Readers.Devices.Stats() }
