// Package localmodel contains the parts that all scorers with models in this process share:
// rewards/preference, rewards/vlm and rewards/ocr/ppocr.
//
//  1. [Once] loads the model once, for any number of concurrent samples (once.go).
//  2. [Cache] computes values that several samples need, such as the embedding of a group's prompt,
//     once, and keeps them within limits (cache.go).
//  3. Both continue as long as one of the waiting callers waits, even if the first one has left
//     (flight.go).
//  4. [Classify] assigns a class of package rewards to an error of the model (errors.go).
package localmodel
