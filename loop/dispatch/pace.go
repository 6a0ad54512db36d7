package dispatch

import (
	"math"
	"slices"
	"time"
)

// paces are the service times of a run, from claim to result: what is usual, and how much
// slower or faster each worker is.
//
// Both have to bear outliers. Where 2 % of the attempts take ten times as long, a mean
// that forgets over 16 samples goes up by half whenever one of them lands, and with it
// everything that is measured against it.
type paces struct {
	by         map[string]*pace
	usual      clipped // seconds
	level      clipped // seconds, of a worker whose factor is 1
	mid        float64 // median of the workers' mean logarithms
	seen       int
	noise      float64 // variance of the logarithm within one worker
	components float64 // behind noise
}

// pace is one worker: the mean logarithm of its service times in seconds.
type pace struct {
	n    float64
	mean float64
	at   int // paces.seen at the latest result
}

// The weight of the latest result is at least 1/forget.
const (
	forgetWorker = 32
	forgetRun    = 32
	forgetNoise  = 128
)

// priorVariance is how much workers are taken to differ before they are measured: a
// factor of √2 either way, as a variance of the logarithm.
const priorVariance = 0.12

// maxPaces bounds the workers that a run remembers.
const maxPaces = 4096

func newPaces() *paces { return &paces{by: map[string]*pace{}} }

// observe takes a service time in.
func (p *paces) observe(worker string, took time.Duration) {
	s := math.Max(took.Seconds(), 1e-6)
	p.usual.add(s)
	p.seen++
	w := p.by[worker]
	if w == nil {
		p.forget()
		w = &pace{}
		p.by[worker] = w
	}
	x, old := math.Log(s), w.mean
	w.n = math.Min(w.n+1, forgetWorker)
	w.mean += (x - old) / w.n
	w.at = p.seen
	if w.n > 1 { // (x − old mean)(x − new mean) has the variance for its expectation
		p.components = math.Min(p.components+1, forgetNoise)
		p.noise += ((x-old)*(x-w.mean) - p.noise) / p.components
	}
	if p.seen < 64 || p.seen%8 == 0 {
		p.middle()
	}
	f, _ := p.factor(worker)
	p.level.add(s / f)
}

// forget makes room for another worker.
func (p *paces) forget() {
	if len(p.by) < maxPaces {
		return
	}
	oldest := ""
	for id, w := range p.by {
		if oldest == "" || w.at < p.by[oldest].at {
			oldest = id
		}
	}
	delete(p.by, oldest)
}

// middle finds the median.
func (p *paces) middle() {
	means := make([]float64, 0, len(p.by))
	for _, w := range p.by {
		means = append(means, w.mean)
	}
	slices.Sort(means)
	p.mid = means[len(means)/2]
}

// factor is a worker's service time over the usual one, and the factor within which that
// is known (one standard error). It lies between the worker's own measurements and 1,
// nearer to 1 the fewer they are and the more samples differ anyway (the estimate of
// empirical Bayes): with samples alike two results tell, with log-normal ones of σ = 1
// eight count half. A worker without measurements has 1.
func (p *paces) factor(worker string) (factor, doubt float64) {
	w := p.by[worker]
	if w == nil {
		return 1, 1
	}
	trust := w.n / (w.n + p.noise/priorVariance)
	return math.Exp(trust * (w.mean - p.mid)), math.Exp(trust * math.Sqrt(p.noise/w.n))
}

// clipped is a mean that forgets, and in which nothing counts for more than three times
// what it was.
type clipped struct {
	value float64
	n     int
}

const clipAt = 3

func (m *clipped) add(x float64) {
	if m.n >= 4 {
		x = math.Min(x, clipAt*m.value)
	}
	m.n = min(m.n+1, forgetRun)
	m.value += (x - m.value) / float64(m.n)
}
