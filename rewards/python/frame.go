package python

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/rewardloop/rewardloop/rewards"
)

// Bounds of a frame. A sample's header is at most 1 MiB on the wire; escapes may
// write it longer here, and a group has those of all its members: 16 MiB, as in package subprocess. A process's answer is at most 1 MiB and has no body.
const (
	maxCallHeader = 16 << 20
	maxAnswer     = 1 << 20
	maxBody       = 1 << 30
)

// protocol is the version that both sides must speak. Both are in one binary; the
// number catches a process.py that was changed alone.
const protocol = 2

var errFrame = errors.New("malformed frame")

// load is the first frame to a process.
type load struct {
	Protocol int              `json:"protocol"`
	Path     string           `json:"path"`
	Source   string           `json:"source,omitempty"` // the text of the module; "": it is read at Path
	Name     string           `json:"name"`
	Pixels   string           `json:"pixels"`
	Kwargs   map[string]any   `json:"kwargs,omitempty"`
	Limits   map[string]int64 `json:"limits"`
	Stall    float64          `json:"stall_seconds"`
	// Concurrency is how many calls of a synchronous function run in threads.
	Concurrency      int `json:"concurrency,omitempty"`
	AgentConcurrency int `json:"agent_concurrency,omitempty"`
	// PostProcess says that groups will come.
	PostProcess bool `json:"post_process,omitempty"`
	// Model says that it is a model, which process.py only inspects; Columns that it takes lists.
	Model   bool `json:"model,omitempty"`
	Columns bool `json:"columns,omitempty"`
	// Signature is the form of the function, and Reference says that groups of validation have one.
	Signature string `json:"signature,omitempty"`
	Reference bool   `json:"reference,omitempty"`
	// Sources are the names and texts of the modules that the form needs, in the order of their making.
	Sources [][2]string `json:"sources,omitempty"`
	// Inspect says that nothing will be called: the process says what the function takes.
	Inspect bool `json:"inspect,omitempty"`
}

// call is a frame to a process: a sample or a group to score, the scores of a group to work on,
// a word to give one of them up, or a profile to begin or end.
type call struct {
	Op     string          `json:"op"` // "call", "group", "score_group", "cancel" or "profile"
	ID     uint64          `json:"id"`
	Sample *rewards.Sample `json:"sample,omitempty"`
	Media  []tensor        `json:"media,omitempty"`
	Scores []*float64      `json:"scores,omitempty"` // of a group; nil: the member has none
	Group  *groupHead      `json:"group,omitempty"`
	Tool   string          `json:"tool,omitempty"` // of a profile
	Path   string          `json:"path,omitempty"` // of a profile that begins; "": one ends

	group *groupCall // what Group is made from when the call has its place
}

// tensor describes a piece of a call's body.
type tensor struct {
	Kind       rewards.Kind   `json:"kind"`
	Layout     rewards.Layout `json:"layout,omitempty"`
	DType      string         `json:"dtype"`
	Shape      []int          `json:"shape"`
	At         int            `json:"at"` // bytes from the start of the body
	Size       int            `json:"size"`
	FPS        float64        `json:"fps,omitempty"`
	SampleRate int            `json:"sample_rate,omitempty"`
}

// reply is a frame from a process.
type reply struct {
	Op      string         `json:"op"` // "ready", "inspected", "refused", "result", "skip", "error", "stuck" or "profiled"
	ID      uint64         `json:"id"`
	Async   bool           `json:"async"`
	PID     int            `json:"pid"`
	Threads int            `json:"threads"` // calls at a time of a synchronous function
	Kind    string         `json:"kind"`    // of a refusal: "missing", "refused" or "failed"
	Brief   string         `json:"brief"`   // of a refusal: its message in one line
	At      string         `json:"at"`      // file and line of a refusal, or of an inspected function
	Faults  []string       `json:"faults"`  // why an inspected function cannot be called
	Module  string         `json:"module"`  // of an error: the module that is not there
	Python  string         `json:"python"`
	Score   *json.Number   `json:"score"`
	Steps   []float64      `json:"steps"`
	Scores  []any          `json:"scores"`  // of post_process_scores: a json.Number, nil, or what is wrong with it
	Members []reply        `json:"members"` // of a group: a reply for each member
	Extra   map[string]any `json:"extra"`
	Details map[string]any `json:"details"`
	Class   rewards.Class  `json:"class"`
	Message string         `json:"message"`
	Output  string         `json:"output"`
	Path    string         `json:"path"` // of a profile

	takes
}

// takes are the parameters of a function: their names, those without a default, and whether
// it takes any other; and the kinds of known sample that it is called with, where Text says that
// those with pixels have a text as well.
type takes struct {
	Names      []string `json:"names"`
	Needed     []string `json:"needed"`
	Everything bool     `json:"everything"`
	Kinds      []string `json:"kinds"`
	Text       bool     `json:"text"`
}

// encodeFrame returns a frame up to its body.
func encodeFrame(header any, body int) ([]byte, error) {
	js, err := json.Marshal(header)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errFrame, err)
	}
	if len(js) > maxCallHeader || body > maxBody {
		return nil, fmt.Errorf("%w: %d bytes of text and %d of tensors, the limits are %d and %d", rewards.TooLarge, len(js), body, maxCallHeader, maxBody)
	}
	buf := make([]byte, 8, 8+len(js))
	binary.LittleEndian.PutUint32(buf, uint32(len(js)))  // bounded above
	binary.LittleEndian.PutUint32(buf[4:], uint32(body)) // bounded above
	return append(buf, js...), nil
}

// writeFrame sends a frame; the parts of its body are not copied. It reports how
// many bytes left, since a frame cut short spoils the connection.
func writeFrame(w net.Conn, head []byte, body [][]byte) (int64, error) {
	buffers := append(net.Buffers{head}, body...)
	return buffers.WriteTo(w)
}

// readReply reads a frame from a process and allocates only after its lengths are
// within the bounds.
func readReply(r io.Reader) (reply, error) {
	var sizes [8]byte
	if _, err := io.ReadFull(r, sizes[:]); err != nil {
		return reply{}, err
	}
	hl, bl := binary.LittleEndian.Uint32(sizes[:4]), binary.LittleEndian.Uint32(sizes[4:])
	if hl > maxAnswer || bl != 0 {
		return reply{}, fmt.Errorf("%w: header of %d bytes and body of %d, the limits are %d and 0", errFrame, hl, bl, maxAnswer)
	}
	js := make([]byte, hl)
	if _, err := io.ReadFull(r, js); err != nil {
		return reply{}, fmt.Errorf("%w: truncated: %w", errFrame, err)
	}
	var out reply
	if err := decodeNumbers(js, &out); err != nil {
		return reply{}, fmt.Errorf("%w: %w", errFrame, err)
	}
	return out, nil
}
