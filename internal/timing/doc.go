// Package timing carries the times that a sample spent in each stage of this process to the code
// that reports them.
//
// The life of it: a worker puts Stages into the context under which it scores a sample;
// whatever the sample passes (the decoder of pictures, a device's queue) adds its time
// there with Spent; when the result is decided, the worker reads all of them and puts
// them beside it. Where nobody has put Stages, Spent does nothing.
package timing
