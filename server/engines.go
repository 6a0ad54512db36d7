package server

import "time"

// EngineServer is one server of an engine that a process has started, as GET /v1/engines lists it.
type EngineServer struct {
	// Engine is its name in the configuration, Kind the program, Model what its questions name.
	Engine string `json:"engine"`
	Kind   string `json:"kind"`
	Model  string `json:"model"`
	// Name is the server's, URL where it listens, State how it is since Since: stopped, starting,
	// ready, silent, paused, asleep or unable.
	Name  string    `json:"name"`
	URL   string    `json:"url"`
	State string    `json:"state"`
	Since time.Time `json:"since"`
	// Starts counts the commands started; PID is that of the process that keeps the last one.
	Starts int `json:"starts"`
	PID    int `json:"pid,omitempty"`
	// InFlight are the questions that it has now, Requests and Failures those that were sent.
	InFlight int   `json:"in_flight"`
	Requests int64 `json:"requests"`
	Failures int64 `json:"failures"`
	// Why is how the last command ended, or what the server cannot do; Log is the file that it writes.
	Why string `json:"why,omitempty"`
	Log string `json:"log,omitempty"`
}
