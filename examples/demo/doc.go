// Package demo shows the main job on real input: a rollout whose pictures are
// scored while the others are still being made.
//
// The life of a demo. Load reads the pictures, prompt groups with a known text in
// each. Run brings a node up with as many workers as it has places to read text, and
// scores some pictures to learn what one costs on this machine. From that it sets
// how long the simulated rollout takes, so that the pool is busy but can keep up.
// Then it plays the same training step twice against the same node, over a real
// websocket: once every picture is submitted the moment its GPU finishes it, once
// all are submitted when the last is finished. What happened goes into a Demo:
// a Record with the times and scores of both runs, and the results themselves.
// Save writes it down; Report computes from it every figure that is shown; Verify
// reads the files and computes them again.
//
// What is real: the pictures, the reading, the reward, the server, its queue and
// the connection. What is simulated: the GPUs wait instead of computing, and the
// policy update is left out.
package demo
