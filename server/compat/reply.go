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

// Reply is the answer to one request. A Reply is immutable, because the same answer may be sent to
// several requests.
type Reply struct {
	// Status is the HTTP status, ContentType the header of Body.
	Status      int
	ContentType string
	Body        []byte
	// Transient means that a retry may succeed. Such an answer is not kept for identical requests.
	Transient bool
	// Pause means that the cause is temporary on the side of the server. The answer then has the
	// header Retry-After.
	Pause bool
	// Reason is why there is no score, for the log. Nil: there is a score.
	Reason *Fault
	// ID is the id of the flight in the log and in X-Request-Id.
	ID string
}

// Fault is why a request, or a whole batch, has no scores.
type Fault struct { //nolint:errname // it is what an answer says; few use it as an error
	// Status is the HTTP status, Class the error code for clients, Message the cause for people.
	Status  int
	Class   rewards.Class
	Message string
	// Failed are the indices of the samples without a score. Nil: the fault concerns the whole
	// request.
	Failed []int
	// Pause means that the client may retry after a short pause; see pauses.
	Pause bool
}

func (f *Fault) Error() string { return string(f.Class) + ": " + f.Message }

// Transient reports whether a retry may succeed.
func (f *Fault) Transient() bool {
	return f.Status == http.StatusServiceUnavailable || f.Status == http.StatusRequestTimeout
}

// Faultf returns a fault with the HTTP status of its class.
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

// JSONReply returns a Reply with the JSON of v, which must be plain data.
func JSONReply(status int, transient bool, v any) Reply {
	body, err := json.Marshal(v)
	if err != nil {
		status, body = http.StatusInternalServerError, []byte(`{"error":"the answer cannot be written as JSON","code":"internal"}`)
	}
	return Reply{Status: status, ContentType: "application/json", Transient: transient, Body: append(body, '\n')}
}
