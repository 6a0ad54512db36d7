// Package timing carries the times that a sample spent in each stage of this process to the code
// that reports them.
//
// A worker adds Stages to the context in which it scores a sample. The code that handles the sample
// (the decoder of pictures, a device's queue) adds its time with Spent. When the result is decided,
// the worker reads the times and adds them to the result. If the context has no Stages, Spent does
// nothing.
package timing
