package rewards

import "errors"

// Blame says whose failure an error is. The class of an error says what happened; it does
// not tell who can mend it: "unavailable" is an engine that is down as well as a process
// that does not start. Blame is set where it is known, crosses the wire beside the class,
// and decides who tries again:
//
//	sample       nobody tries again
//	reward       the component's retries (default 0), on the same worker
//	dependency   whoever calls the service, within the deadline
//	worker       another worker, up to loop.max_attempts
//	nobody       the caller left, or the time passed while the sample waited
type Blame string

// The blames.
const (
	BlameSample     Blame = "sample"     // no worker can score it: bad input, no target
	BlameReward     Blame = "reward"     // the reward function or model: exception, NaN, no score, hang, crash
	BlameDependency Blame = "dependency" // an engine or service that the reward asks
	BlameWorker     Blame = "worker"     // the worker, its machine, its devices, what is installed there
	BlameNobody     Blame = "nobody"     // time that passed in a queue, a caller that left
)

// Blames lists them all, for checks and labels.
func Blames() []Blame {
	return []Blame{BlameSample, BlameReward, BlameDependency, BlameWorker, BlameNobody}
}

// blamed is an error whose blame is known.
type blamed struct {
	error
	blame     Blame
	permanent bool
}

// Unwrap returns the error that is blamed on somebody.
func (e *blamed) Unwrap() error { return e.error }

// Blamed returns err with a blame; its text and what it wraps stay. Of several blames
// around one error the outermost holds. Nil stays nil.
func Blamed(b Blame, err error) error {
	if err == nil {
		return nil
	}
	return &blamed{error: err, blame: b}
}

// Permanent returns err with a blame, and says that the same will happen to every sample:
// a key that is refused, a model that the engine does not have (of a dependency), a module
// that this worker lacks (of a worker, until it restarts). Nil stays nil.
func Permanent(b Blame, err error) error {
	if err == nil {
		return nil
	}
	return &blamed{error: err, blame: b, permanent: true}
}

// BlameOf returns the blame of an error and whether it is permanent. An error that was
// blamed on nobody in particular has the blame that its class most often means. Nil has
// none.
func BlameOf(err error) (b Blame, permanent bool) {
	if err == nil {
		return "", false
	}
	if e, ok := errors.AsType[*blamed](err); ok {
		return e.blame, e.permanent
	}
	return ClassOf(err).blame(), false
}

// blame is what a class means where nothing more is known.
func (c Class) blame() Blame {
	switch c {
	case BadInput, TooLarge, Malformed, IDReused, OverCredit, UnsupportedEncoding:
		return BlameSample
	case Unavailable:
		return BlameDependency
	case Lost, UnknownReward, Draining:
		return BlameWorker
	case Cancelled, Expired:
		return BlameNobody
	}
	return BlameReward
}
