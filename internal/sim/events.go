package sim

// fifo is a queue; what was tried before stands in front.
type fifo struct {
	again, items []int32
	head         int
}

func (q *fifo) len() int { return len(q.again) + len(q.items) - q.head }

func (q *fifo) push(j int32, again bool) {
	if again {
		q.again = append(q.again, j)
		return
	}
	if q.head > len(q.items)/2 { // what was taken is more than half
		q.items = q.items[:copy(q.items, q.items[q.head:])]
		q.head = 0
	}
	q.items = append(q.items, j)
}

func (q *fifo) pop() int32 {
	if len(q.again) > 0 {
		j := q.again[0]
		q.again = q.again[1:]
		return j
	}
	q.head++
	return q.items[q.head-1]
}

// event is what will happen to a server.
type event struct {
	at     float64
	kind   eventKind
	server int32
	token  uint32
}

type eventKind uint8

const (
	done eventKind = iota
	overdue
)

// before orders events; the rest of the order only makes it one.
func (e event) before(o event) bool {
	if e.at != o.at {
		return e.at < o.at
	}
	if e.kind != o.kind {
		return e.kind < o.kind
	}
	return e.server < o.server
}

// events is a binary heap. Package container/heap would allocate for every event.
type events []event

func (h *events) push(e event) {
	*h = append(*h, e)
	a := *h
	for i := len(a) - 1; i > 0; {
		parent := (i - 1) / 2
		if !a[i].before(a[parent]) {
			return
		}
		a[i], a[parent] = a[parent], a[i]
		i = parent
	}
}

func (h *events) pop() event {
	a := *h
	first := a[0]
	a[0] = a[len(a)-1]
	a = a[:len(a)-1]
	*h = a
	for i := 0; ; {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(a); child++ {
			if a[child].before(a[least]) {
				least = child
			}
		}
		if least == i {
			return first
		}
		a[i], a[least] = a[least], a[i]
		i = least
	}
}

// Limits of the simulation and of recorded traces.
const (
	// MaxServers is the maximum number of samples that can be scored at the same time.
	MaxServers = 1 << 20
	// MaxAttempts is the maximum number of attempts for a sample.
	MaxAttempts = 64
)

// Attempt is one attempt of a worker to score a sample.
type Attempt struct {
	Worker  string  `json:"worker,omitempty"`
	Started float64 `json:"started_s"`
	Ended   float64 `json:"ended_s"`
	// Backup means that the attempt was started beside a running attempt, not after a failed one.
	Backup bool `json:"backup,omitempty"`
	// Outcome is AttemptWon for the attempt whose result counted, or another word, such as late
	// (another attempt was first), failed or lost.
	Outcome string `json:"outcome,omitempty"`
}

// AttemptWon is the outcome of the attempt whose result counted.
const AttemptWon = "scored"
