package server

import "time"

// EngineServer is one server of an engine that this process has started, as listed by GET
// /v1/engines.
type EngineServer struct {
	// Engine is the name of the engine in the configuration, Kind the program, Model the model name
	// in requests.
	Engine string `json:"engine"`
	Kind   string `json:"kind"`
	Model  string `json:"model"`
	// Name is the name of the server, URL its address. State is stopped, starting, ready, silent,
	// paused, asleep or unable, and has not changed since Since.
	Name  string    `json:"name"`
	URL   string    `json:"url"`
	State string    `json:"state"`
	Since time.Time `json:"since"`
	// Starts is the number of commands started. PID is that of the process that supervises the last
	// command.
	Starts int `json:"starts"`
	PID    int `json:"pid,omitempty"`
	// InFlight is the number of requests in flight, Requests the number of requests sent, Failures
	// the number that failed.
	InFlight int   `json:"in_flight"`
	Requests int64 `json:"requests"`
	Failures int64 `json:"failures"`
	// Why is how the last command ended, or what the server cannot do. Log is the path of the
	// server's log file.
	Why string `json:"why,omitempty"`
	Log string `json:"log,omitempty"`
}
