package node

import (
	"time"

	"github.com/rewardloop/rewardloop/pool"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/python"
)

// LoadTime is how long Start took to ready the scorers: their processes and models.
func (n *Node) LoadTime() time.Duration { return n.warmed }

// Grouped reports whether a reward looks at whole prompt groups.
func (n *Node) Grouped(reward string) bool { return n.managers[reward].Grouped() }

// KnownSamples are known samples that a reward takes, once Start has returned: those of its
// function in Python, by its parameters, and for any other scorer a picture with a prompt, a
// response and a ground truth. None: the function's entry wants no calls with them.
func (n *Node) KnownSamples(reward string) []*rewards.Sample {
	samples, knows := n.managers[reward].KnownSamples()
	if !knows {
		samples = []*rewards.Sample{python.KnownSample(string(rewards.Image), true)}
	}
	return samples
}

// Pool is what the devices are doing and have done.
func (n *Node) Pool() pool.Stats { return n.scorers.Readers.Devices.Stats() }
