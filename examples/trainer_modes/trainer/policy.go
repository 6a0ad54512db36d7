package trainer

import (
	"math"
	"strconv"
)

// dims is how many numbers the policy has, and how many stand in a response.
const dims = 4

// Theta is the policy: responses are drawn around it.
type Theta [dims]float64

// Noise is the noise of one response, approximately normal with variance 1.
type Noise [dims]float64

const (
	// spread is how far responses stray from the policy.
	spread = 0.25
	// rate is how far one mini-batch moves the policy at most.
	rate = 0.1
	// maxNorm is the length to which gradients are cut.
	maxNorm = 1.0
	// epsilon keeps advantages of a group of near equals finite, as in FlowGRPO.
	epsilon = 1e-6
)

// Response returns the response of the policy with that noise: its numbers with six digits after
// the point. These digits round in the same way in every language.
func (t *Theta) Response(n *Noise) string {
	b := make([]byte, 0, dims*10)
	for d := range t {
		if d > 0 {
			b = append(b, ' ')
		}
		b = strconv.AppendFloat(b, t[d]+float64(spread*n[d]), 'f', 6, 64)
	}
	return string(b)
}

// Advantages returns the advantages of one group under GRPO: (r − mean) / (std + 1e-6), with the
// population standard deviation, over the members whose reward is valid. Other members get 0,
// because nothing is learned from a sample without a reward.
func Advantages(rewards []float64, valid []bool) []float64 {
	out := make([]float64, len(rewards))
	sum, n := 0.0, 0
	for i, r := range rewards {
		if valid[i] {
			sum += r
			n++
		}
	}
	if n == 0 {
		return out
	}
	mean, squares := sum/float64(n), 0.0
	for i, r := range rewards {
		if valid[i] {
			squares += float64((r - mean) * (r - mean)) // the conversion forbids a fused operation
		}
	}
	std := math.Sqrt(squares / float64(n))
	for i, r := range rewards {
		if valid[i] {
			out[i] = (r - mean) / (std + epsilon)
		}
	}
	return out
}

// Update learns from one mini-batch. The gradient is the mean of advantage × noise, in the given
// order, clipped to length 1 as in trainers. Because of the clipping, the result depends on which
// samples are in which mini-batch.
func (t *Theta) Update(advantages []float64, noise []Noise) {
	if len(advantages) == 0 {
		return
	}
	var g Theta
	for i, a := range advantages {
		for d := range g {
			g[d] += float64(a * noise[i][d])
		}
	}
	squares := 0.0
	for d := range g {
		g[d] /= float64(len(advantages))
		squares += float64(g[d] * g[d])
	}
	factor := rate
	if norm := math.Sqrt(squares); norm > maxNorm {
		factor = rate / norm
	}
	for d := range t {
		t[d] += float64(factor * g[d])
	}
}

// DrawNoise returns the noise of a row of a step.
func DrawNoise(seed uint64, step int64, row int) Noise {
	s := stream(seed, 1, uint64(step), uint64(row)) //nolint:gosec // bits are bits
	var n Noise
	for d := range n {
		// A sum of four has variance 1/3, and is near enough to normal for a toy.
		n[d] = float64((s.uniform() + s.uniform() + s.uniform() + s.uniform() - 2) * 1.7320508075688772)
	}
	return n
}

// random is SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number
// generators, 2014): a few lines in any language.
type random uint64

// stream is the sequence that belongs to some numbers.
func stream(seed uint64, parts ...uint64) random {
	s := random(seed)
	for _, p := range parts {
		s = random(s.next() ^ p)
	}
	return s
}

func (s *random) next() uint64 {
	*s += 0x9e3779b97f4a7c15
	z := uint64(*s)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// uniform is in [0, 1), with 53 bits.
func (s *random) uniform() float64 { return float64(s.next()>>11) / (1 << 53) }
