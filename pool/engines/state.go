package engines

import "fmt"

// State is the state of a server.
type State string

// The states.
const (
	// Stopped means that the server has not been started, or was ended for good.
	Stopped State = "stopped"
	// Starting means that the command runs, and the server does not answer yet.
	Starting State = "starting"
	// Ready means that the server has answered the canary.
	Ready State = "ready"
	// Silent means that the server was ready and does not answer; it is being ended.
	Silent State = "silent"
	// Asleep means that the server has released its memory (see Engine.Sleep). Its command is
	// running if the server can sleep, and has ended otherwise.
	Asleep State = "asleep"
	// Paused means that the command has ended and is restarted after a pause.
	Paused State = "paused"
	// Unable means that the server lacks a required feature. It is not restarted.
	Unable State = "unable"
)

// event is what happens to a server.
type event string

const (
	started  event = "started"  // its command runs
	answered event = "answered" // the canary
	refused  event = "refused"  // the canary, for good
	quiet    event = "quiet"    // it missed its health checks, or a canary that it once answered
	ended    event = "ended"    // its command, by itself or by us
	slept    event = "slept"    // it has given its memory back
	woken    event = "woken"    // it takes its memory again, and has not answered yet
	closed   event = "closed"   // the engine stops
)

// next is the table of states: what becomes of a server to which something happens.
func next() map[State]map[event]State {
	return map[State]map[event]State{
		Stopped:  {started: Starting, closed: Stopped, ended: Paused, slept: Asleep},
		Starting: {answered: Ready, refused: Unable, ended: Paused, closed: Stopped, slept: Asleep},
		Ready:    {quiet: Silent, refused: Unable, ended: Paused, closed: Stopped, answered: Ready, slept: Asleep},
		Silent:   {ended: Paused, closed: Stopped, slept: Asleep},
		Asleep:   {started: Starting, woken: Starting, ended: Asleep, slept: Asleep, closed: Stopped},
		Paused:   {started: Starting, ended: Paused, closed: Stopped, slept: Asleep},
		Unable:   {closed: Stopped, slept: Unable, woken: Unable},
	}
}

// after is the state that follows.
func (s State) after(e event) (State, error) {
	if to, ok := next()[s][e]; ok {
		return to, nil
	}
	return s, fmt.Errorf("a server that is %s cannot have %s", s, e)
}
