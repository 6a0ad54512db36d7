package compat

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/rewardloop/rewardloop/internal/pickle"
	"github.com/rewardloop/rewardloop/rewards"
)

// binaryType is the content type of pickles.
const binaryType = "application/octet-stream"

// Reply is what goes back for one request. The same answer may go back for
// several: it is immutable.
type Reply struct {
	// Status is that of HTTP; ContentType is the header of Body.
	Status      int
	ContentType string
	Body        []byte
	// Transient: another try may succeed. Such an answer is not remembered.
	Transient bool
	// Pause: it is this server that cannot now, and will in a moment. Retry-After says so.
	Pause bool
	// Reason is why there is no score, for the log; nil: there is one.
	Reason *Fault
	// ID names the flight in the log and in X-Request-Id.
	ID string
}

// Fault is why a request, or a whole batch, has no scores.
type Fault struct { //nolint:errname // it is what an answer says; few use it as an error
	// Status is that of HTTP, Class what clients tell faults apart by, Message for people.
	Status  int
	Class   rewards.Class
	Message string
	// Failed are the indices of the samples that have no score; nil: it is about
	// the request as a whole.
	Failed []int
	// Pause asks the client to come again in a moment; see pauses.
	Pause bool
}

func (f *Fault) Error() string { return string(f.Class) + ": " + f.Message }

// Transient reports whether another try may succeed.
func (f *Fault) Transient() bool {
	return f.Status == http.StatusServiceUnavailable || f.Status == http.StatusRequestTimeout
}

// Faultf makes a fault with the status that its class has over HTTP.
func Faultf(class rewards.Class, format string, args ...any) *Fault {
	return &Fault{Status: statusOf(class), Class: class, Message: fmt.Sprintf(format, args...), Pause: pauses(class)}
}

// pauses reports whether waiting helps against a failure of that class: this server is
// busy or going, or something that a reward needs is away. Only then does an answer
// have Retry-After: urllib3, which flow_grpo's clients use with a thousand retries,
// obeys it whatever statuses it was told to retry (Retry.is_retry), and would hold a
// trainer for a day over one sample whose reward always takes too long or kills its
// process. Clients that retry a 503 by its status do so without it.
func pauses(class rewards.Class) bool {
	return class == rewards.Draining || class == rewards.OverCredit || class == rewards.Unavailable
}

// statusOf gives the status that tells clients whether to try again.
func statusOf(class rewards.Class) int {
	switch class {
	case rewards.Malformed, rewards.IDReused:
		return http.StatusBadRequest
	case rewards.TooLarge:
		return http.StatusRequestEntityTooLarge
	case rewards.Draining, rewards.Unavailable, rewards.OverCredit, rewards.Expired, rewards.Lost,
		rewards.Crashed, rewards.Timeout, rewards.Cancelled:
		return http.StatusServiceUnavailable
	}
	return http.StatusUnprocessableEntity
}

// pickled is the form of a fault in flow_grpo's protocol.
func (f *Fault) pickled() Reply {
	return Reply{
		Status: f.Status, ContentType: binaryType, Transient: f.Transient(), Pause: f.Pause, Reason: f,
		Body: pickle.EncodeError(f.Error(), f.Failed),
	}
}

// json is the form of a fault everywhere else.
func (f *Fault) json() Reply {
	a := JSONReply(f.Status, f.Transient(), map[string]any{
		"error": f.Message, "code": f.Class, "failed": f.Failed,
	})
	a.Pause, a.Reason = f.Pause, f
	return a
}

// JSONReply encodes v, which must be plain data.
func JSONReply(status int, transient bool, v any) Reply {
	body, err := json.Marshal(v)
	if err != nil {
		status, body = http.StatusInternalServerError, []byte(`{"error":"the answer cannot be written as JSON","code":"internal"}`)
	}
	return Reply{Status: status, ContentType: "application/json", Transient: transient, Body: append(body, '\n')}
}
