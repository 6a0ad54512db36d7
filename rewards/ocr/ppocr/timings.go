package ppocr

import "time"

// Timings is where the time of one frame went.
type Timings struct {
	// Own is the time in this package's code. Crops are handled at the same time, so
	// that these may add up to more than Total.
	Own time.Duration
	// Detector and Recogniser are the time spent waiting for the models,
	// each crop's wait counted.
	Detector, Recogniser time.Duration
	Total                time.Duration
	// DetectorPixels is the size of the detector's input, Lines the number of crops.
	DetectorPixels, Lines int
}

// stopwatch adds up one goroutine's time. It runs from the start.
type stopwatch struct {
	own, detector, recogniser time.Duration
	pixels                    int
	since                     time.Time
}

func startStopwatch() *stopwatch { return &stopwatch{since: time.Now()} }

// pause ends a stretch of own time.
func (s *stopwatch) pause() {
	now := time.Now()
	s.own += now.Sub(s.since)
	s.since = now
}

// resume begins one.
func (s *stopwatch) resume() { s.since = time.Now() }

// waited ends a wait that pause began, and adds it to a total.
func (s *stopwatch) waited(total *time.Duration) {
	now := time.Now()
	*total += now.Sub(s.since)
	s.since = now
}

// add takes in the times of another one that is paused.
func (s *stopwatch) add(o *stopwatch) {
	s.own += o.own
	s.detector += o.detector
	s.recogniser += o.recogniser
}
