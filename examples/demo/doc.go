// Package demo shows the main purpose of the reward loop with real input: a rollout whose pictures
// are scored while other pictures are still being generated.
//
// The life of a demo: Load reads the pictures, which are prompt groups with a known text in each
// picture. Run starts a node with one worker for each text reader, and scores some pictures to
// measure the cost of a picture on this machine. From this it computes the duration of the
// simulated rollout, so that the pool is busy but can keep up. Then it runs the same training step
// twice against the same node, over a real websocket: first each picture is submitted when its GPU
// finishes it, then all pictures are submitted when the last one is finished. The result is a Demo:
// a Record with the times and scores of both runs, and the results. Save writes the Demo to files;
// Report computes from it every figure that is shown; Verify reads the files and computes the
// figures again.
//
// The pictures, the reading, the reward, the server, its queue and the connection are real.
// Simulated are the GPUs, which wait instead of computing; the policy update is left out.
package demo
